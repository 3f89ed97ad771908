"""Check the segment format: it is read as written, and a changed byte is detected."""

import struct
from collections.abc import Callable
from contextlib import suppress
from random import Random

import msgspec
import pytest

from korvet.wire import batch_builder, control_records, segments
from korvet.wire.records import read_header
from korvet.wire.segment_writer import SegmentWriter
from korvet.wire.segments import AbortedRow, CorruptSegment, IndexRow, SegmentHeader

HEADER = SegmentHeader(
    id="abc",
    cluster_id="c",
    topic="orders",
    topic_id="0" * 32,
    partition=3,
    first=0,
    last=0,
    records=0,
    bytes=0,
    max_timestamp=-1,
    storage_format="batch",
    offset_mode="dense",
    created_ms=5,
)
ABORTED = [AbortedRow(7, 90, 130, 131), AbortedRow(8, 150, 400, 401)]


def batch(base: int, count: int = 10, size: int = 100) -> bytearray:
    """Return a batch of `count` records of `size` bytes at offset `base`."""
    return batch_builder.build(
        [(base + n, 1000 + base + n, b"k", b"v" * size, []) for n in range(count)], base=base
    )


def written(batches: int = 3, size: int = 100, first: int = 100) -> bytes:
    """Return a segment of `batches` batches of ten records, starting at offset `first`."""
    writer = SegmentWriter(first)
    for at in range(batches):
        writer.add(batch(first + 10 * at, size=size))
    return b"".join(writer.finish(HEADER, ABORTED))


def test_a_segment_is_read_as_it_was_written() -> None:
    segment, batches = segments.read_segment(written(40, size=1000))
    header = segment.header
    assert (header.first, header.last, header.records) == (100, 499, 400)
    assert (header.max_timestamp, header.bytes) == (1499, len(batches))
    assert list(segment.aborted) == ABORTED
    assert len(segment.rows) > 3, "one row per 64 KiB"
    assert sum(row.records for row in segment.rows) == 400
    offsets = [header.base_offset for _, _, header in segments.headers_in(batches)]
    assert offsets == list(range(100, 500, 10))


def test_a_chunk_is_found_by_offset_and_by_timestamp() -> None:
    segment, _ = segments.read_segment(written(40, size=1000))
    second = segment.rows[1]
    assert segment.chunk_of(second.offset) == segment.chunk_of(second.offset + 1) == 1
    assert segment.chunk_of(second.offset - 1) == segment.chunk_of(5) == 0
    assert segment.chunk_since(second.max_timestamp) == 1
    assert segment.chunk_since(0) == 0
    assert segment.chunk_since(9999) is None


def test_a_slice_has_whole_batches_that_fit_or_one() -> None:
    data = b"".join(bytes(batch(100 + 10 * n)) for n in range(4))
    size = len(data) // 4
    cases = [
        (100, 10 * size, data, 140),
        (105, 2 * size, data[: 2 * size], 120),
        (112, 1, data[size : 2 * size], 120),
        (139, size, data[3 * size :], 140),
        (140, size, b"", -1),
    ]
    for offset, most, expected, after in cases:
        begin, end, found = segments.find_batches(data, 0, offset, most)
        assert (data[begin:end], found) == (expected, after), offset


@pytest.mark.parametrize(
    "walk",
    [
        lambda data: list(segments.headers_in(data)),
        segments.count_records,
        lambda data: segments.skip_batches(data, 1000),
        lambda data: segments.last_offset(data, 0),
        lambda data: segments.find_batches(data, 0, 0, 1),
    ],
    ids=["headers", "count", "skip", "last", "find"],
)
def test_a_walk_ends_at_a_batch_of_negative_length(walk: Callable[[bytes], object]) -> None:
    data = batch(100) + batch(110)
    at = len(data) // 2
    data[at + 8 : at + 12] = (-12).to_bytes(4, "big", signed=True)
    with pytest.raises(segments.CorruptSegment, match=f"no record batch at position {at}"):
        walk(bytes(data))


def test_aborted_transactions_are_those_that_overlap_the_offsets() -> None:
    segment, _ = segments.read_segment(written())
    assert segment.aborted_in(100, 129) == [(7, 90)]
    assert segment.aborted_in(131, 149) == []
    assert segment.aborted_in(130, 150) == [(7, 90), (8, 150)]


def test_markers_are_no_records() -> None:
    writer = SegmentWriter(100)
    writer.add(batch(100))
    writer.add(control_records.control_batch(110, 10**13, 7, 0, False))
    segment, _ = segments.read_segment(b"".join(writer.finish(HEADER, [])))
    header = segment.header
    assert (header.last, header.records, header.max_timestamp) == (110, 10, 1109)


def test_batches_that_do_not_rise_are_not_taken() -> None:
    writer = SegmentWriter(100)
    with pytest.raises(ValueError, match="batch at 90 after offset 99"):
        writer.add(batch(90))
    writer.add(batch(100))
    with pytest.raises(ValueError, match="after offset 109"):
        writer.add(batch(105))


def test_the_first_batch_may_begin_below_the_first_offset() -> None:
    writer = SegmentWriter(105)
    writer.add(batch(100))
    with pytest.raises(ValueError, match="batch at 105 after offset 109"):
        writer.add(batch(105))
    writer.add(batch(110))
    segment, batches = segments.read_segment(b"".join(writer.finish(HEADER, [])))
    assert (segment.header.first, segment.header.last) == (105, 119)
    assert segment.chunk_of(105) == 0
    assert segments.find_batches(batches, 0, 105, 1)[2] == 110


def test_an_offset_in_a_gap_between_chunks_is_found_in_the_next() -> None:
    writer = SegmentWriter(100)
    for n in range(40):
        writer.add(batch(100 + 30 * n, size=1000))
    segment, batches = segments.read_segment(b"".join(writer.finish(HEADER, [])))
    assert len(segment.rows) > 3
    for n in range(39):
        offset = 100 + 30 * n + 15
        chunk = segment.chunk_of(offset)
        position = segment.rows[chunk].position
        begin, _, after = segments.find_batches(batches, position, offset, 1)
        assert (read_header(batches, begin).base_offset, after) == (130 + 30 * n, 140 + 30 * n)


@pytest.mark.parametrize("length", [-12, 0, 48, 10**6, -(2**31)])
def test_a_batch_without_its_own_length_is_corrupt(length: int) -> None:
    """Otherwise a reader of unverified bytes would loop without end."""
    data = batch(100) + batch(110)
    struct.pack_into(">i", data, 8, length)
    with pytest.raises(CorruptSegment, match="no record batch at position 0"):
        list(segments.headers_in(data))


@pytest.mark.parametrize("at", ["start", "between", "end"])
def test_further_bytes_anywhere_are_corrupt(at: str) -> None:
    sound = written(2, size=20)
    position = {"start": 0, "between": len(sound) - segments.footer_size(sound), "end": len(sound)}
    split = position[at]
    for more in (b"\0", sound):
        with pytest.raises(CorruptSegment):
            segments.read_segment(sound[:split] + more + sound[split:])


def test_any_changed_byte_is_detected() -> None:
    sound = written(2, size=20)
    for at in range(len(sound)):
        changed = bytearray(sound)
        changed[at] ^= 1
        with pytest.raises(CorruptSegment):
            segments.read_segment(changed)


def test_a_segment_cut_anywhere_is_corrupt() -> None:
    sound = written(2, size=20)
    for size in range(len(sound)):
        with pytest.raises(CorruptSegment):
            segments.read_segment(sound[:size])


def test_a_corrupt_chunk_names_topic_partition_and_offsets() -> None:
    sound = written(40, size=1000)
    segment, _ = segments.read_segment(sound)
    changed = bytearray(sound)
    changed[segment.rows[1].position + 3] ^= 0x40  # a base offset: no CRC of a batch covers it
    with pytest.raises(CorruptSegment) as caught:
        segments.read_segment(changed)
    first, last = segment.rows[1].offset, segment.rows[2].offset - 1
    assert f"offsets {first} to {last} of orders-3" in str(caught.value)


@pytest.mark.parametrize("value", [b'"\xff"', b"[" * 100_000, b"{"])
def test_a_header_that_is_no_json_is_corrupt(value: bytes) -> None:
    text = b'{"topic":' + value
    footer = text + segments._TRAILER.pack(
        0, 0, len(text), segments._footer_crc(text, (0, 0, len(text))), segments.MAGIC
    )
    with pytest.raises(CorruptSegment, match="the header cannot be decoded"):
        segments.read_footer(footer)


def test_a_newer_format_is_refused() -> None:
    writer = SegmentWriter(100)
    writer.add(batch(100))
    newer = b"".join(writer.finish(msgspec.structs.replace(HEADER, format=2), []))
    with pytest.raises(CorruptSegment, match="format 2 is unknown"):
        segments.read_segment(newer)


ROWS = [IndexRow(100, 0, 5, 20, 1), IndexRow(120, 70_000, 6, 10, 2)]
WRONG = {
    "first above last": ({"first": 130}, ROWS),
    "negative first": ({"first": -1}, ROWS),
    "huge last": ({"last": 2**63}, ROWS),
    "negative bytes": ({"bytes": -1}, ROWS),
    "huge bytes": ({"bytes": 2**70}, ROWS),
    "negative partition": ({"partition": -1}, ROWS),
    "huge timestamp": ({"max_timestamp": 2**64}, ROWS),
    "other records": ({"records": 31}, ROWS),
    "path for an id": ({"id": "../../etc"}, ROWS),
    "control characters": ({"topic": "\x1b[31m"}, ROWS),
    "long name": ({"topic": "x" * 256}, ROWS),
    "no name": ({"cluster_id": ""}, ROWS),
    "no rows": ({}, []),
    "rows twice": ({}, [*ROWS, *ROWS]),
    "begin after 0": ({}, [ROWS[0]._replace(position=1), ROWS[1]]),
    "position after the end": ({}, [ROWS[0], ROWS[1]._replace(position=90_000)]),
    "offset after the last": ({}, [ROWS[0], ROWS[1]._replace(offset=130)]),
    "falling offsets": ({}, [ROWS[0], ROWS[1]._replace(offset=100)]),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_footer_with_a_right_checksum_and_wrong_content_is_corrupt(wrong: str) -> None:
    right = {"first": 100, "last": 129, "bytes": 80_000, "records": 30}
    values, rows = WRONG[wrong]
    header = msgspec.structs.replace(HEADER, **{**right, **values})
    with pytest.raises(segments.CorruptSegment):
        segments.read_footer(segments.footer_of(header, rows, []))
    sound = msgspec.structs.replace(HEADER, **right)
    assert segments.read_footer(segments.footer_of(sound, ROWS, [])).header == sound


@pytest.mark.parametrize("aborted", [(-1, 90, 130, 131), (7, 131, 130, 131), (7, -1, 130, 131)])
def test_an_aborted_transaction_without_valid_offsets_is_corrupt(aborted: tuple[int, ...]) -> None:
    header = msgspec.structs.replace(HEADER, first=100, last=129, bytes=80_000, records=30)
    with pytest.raises(segments.CorruptSegment, match="aborted transaction"):
        segments.read_footer(segments.footer_of(header, ROWS, [AbortedRow(*aborted)]))


def test_no_mutation_raises_anything_else() -> None:
    """As bytes change on a disk: the checksums are not made right again."""
    good, random = written(40, size=1000), Random(7)
    for _ in range(300):
        data = bytearray(good)
        for _ in range(random.randint(1, 8)):
            at = random.choice([random.randrange(len(data)), -1 - random.randrange(400)])
            data[at] = random.randrange(256)
        if random.random() < 0.2:
            del data[random.randrange(len(data)) :]
        with suppress(segments.CorruptSegment):
            segments.read_segment(data)
        with suppress(segments.CorruptSegment):
            list(segments.headers_in(data))
