"""Check record batches of format v2: validation, parsing and building."""

import struct
import tracemalloc
from collections.abc import Callable
from random import Random

import crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from korvet.base.errors import ErrorCode
from korvet.wire import batch_builder, compression, records
from korvet.wire.records import BadBatch, Record, claimed_headers
from tests.support.wire_client import batches_in

blobs = st.none() | st.binary(max_size=40)
names = st.text(max_size=8)
rows = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.just(-1) | st.integers(0, 2**42),
        blobs,
        blobs,
        st.lists(st.tuples(names, blobs), max_size=3),
    ),
    min_size=1,
    max_size=8,
)
few = settings(max_examples=60, deadline=None, derandomize=True, database=None)


def risen(made: list[Record], base: int) -> list[Record]:
    """Give the records rising offsets from `base`; the first column is the gap before each."""
    found, offset = [], base
    for gap, *rest in made:
        offset += gap
        found.append((offset, *rest))
        offset += 1
    return found


def sound(count: int = 3, codec: int = compression.NONE, **fields: int) -> bytearray:
    """Build a client's batch with changed header fields and a correct CRC."""
    batch = batch_builder.build(
        [(n, 1000 + n, b"k", b"v%d" % n, []) for n in range(count)], codec=codec
    )
    header = records.read_header(batch)._replace(**fields)
    records.HEADER.pack_into(batch, 0, *header)
    struct.pack_into(">I", batch, 17, crc32c.crc32c(bytes(batch[records.ATTRIBUTES_AT :])))
    return batch


def refusal(batch: bytes | bytearray) -> ErrorCode:
    with pytest.raises(BadBatch) as caught:
        records.check_produced(batch)
    assert str(caught.value)
    return caught.value.error


@few
@given(made=rows, base=st.integers(0, 2**53), codec=st.sampled_from(range(5)))
def test_what_is_built_is_read_back(made: list[Record], base: int, codec: int) -> None:
    wanted = risen(made, base)
    batch = batch_builder.build(wanted, codec=codec, leader_epoch=7, producer=(5, 6, 7))
    assert records.records_of(batch) == wanted
    header = records.read_header(batch)
    assert (header.base_offset, header.leader_epoch, header.magic) == (wanted[0][0], 7, 2)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 6, 7)
    assert header.max_timestamp == max(row[1] for row in wanted)
    assert header.last_offset_delta == wanted[-1][0] - wanted[0][0]


@pytest.mark.parametrize("times", [[-1, 5], [-1, -1, 9], [-1, 0], [-1], [-1, 2**63 - 2], [7, -1]])
@pytest.mark.parametrize("codec", range(5))
def test_a_record_without_a_time_gets_none_from_the_next(times: list[int], codec: int) -> None:
    wanted: list[Record] = [(n, ms, None, b"v", []) for n, ms in enumerate(times)]
    batch = batch_builder.build(wanted, codec=codec)
    assert records.records_of(batch) == wanted
    header = records.check_produced(batch)
    assert (header.first_timestamp, header.max_timestamp) == (times[0], max(times))


@few
@given(made=rows, codec=st.sampled_from(range(5)))
def test_a_clients_batch_passes_the_check(made: list[Record], codec: int) -> None:
    wanted = [(n, *row[1:]) for n, row in enumerate(made)]
    header = records.check_produced(batch_builder.build(wanted, codec=codec))
    assert (header.records, header.codec) == (len(made), codec)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"records": 0}, ErrorCode.INVALID_RECORD),
        ({"records": -1}, ErrorCode.INVALID_RECORD),
        ({"records": 4}, ErrorCode.INVALID_RECORD),
        ({"last_offset_delta": 7}, ErrorCode.INVALID_RECORD),
        ({"records": 400, "last_offset_delta": 399}, ErrorCode.INVALID_RECORD),
        ({"records": 10**6, "last_offset_delta": 10**6 - 1}, ErrorCode.MESSAGE_TOO_LARGE),
        ({"attributes": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"attributes": 7}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"attributes": records.CONTROL}, ErrorCode.INVALID_RECORD),
        ({"producer_id": 1}, ErrorCode.INVALID_RECORD),
        ({"producer_id": 1, "producer_epoch": 0}, ErrorCode.INVALID_RECORD),
        ({"producer_id": 1, "base_sequence": 0}, ErrorCode.INVALID_RECORD),
        ({"length": 0}, ErrorCode.CORRUPT_MESSAGE),
        ({"length": -5}, ErrorCode.CORRUPT_MESSAGE),
        ({"length": 48}, ErrorCode.CORRUPT_MESSAGE),
        ({"length": 10**9}, ErrorCode.INVALID_RECORD),
    ],
)
def test_a_wrong_header_field_is_refused(fields: dict[str, int], error: ErrorCode) -> None:
    assert refusal(sound(**fields)) is error


def test_two_batches_or_half_a_one_are_refused() -> None:
    batch = bytes(sound())
    assert refusal(batch + batch) is ErrorCode.INVALID_RECORD
    for end in range(len(batch)):
        assert refusal(batch[:end]) is ErrorCode.INVALID_RECORD
    assert refusal(b"") is ErrorCode.INVALID_RECORD


def test_one_flipped_bit_is_refused() -> None:
    batch = bytes(sound())
    for at in range(records.MAGIC_AT + 1, len(batch)):
        broken = bytearray(batch)
        broken[at] ^= 1
        assert refusal(broken) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", range(5))
def test_damaged_records_are_refused_or_readable(codec: int) -> None:
    batch = sound(20, codec)
    random = Random(codec)
    for _ in range(300):
        broken = bytearray(batch)
        for _ in range(random.randrange(1, 4)):
            broken[random.randrange(records.HEADER_SIZE, len(broken))] = random.randrange(256)
        try:
            found = records.records_of(broken, limit=10_000)
        except BadBatch as error:
            assert error.error in (ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE)
        else:
            assert len(found) == 20


@pytest.mark.parametrize("codec", range(1, 5))
def test_a_compression_bomb_is_bounded(codec: int) -> None:
    batch = batch_builder.build([(0, 1, None, bytes(1_000_000), [])], codec=codec)
    assert len(batch) < 60_000
    with pytest.raises(BadBatch) as caught:
        records.records_of(batch, limit=100_000)
    assert caught.value.error is ErrorCode.MESSAGE_TOO_LARGE
    assert len(records.records_of(batch, limit=1_100_000)) == 1


@pytest.mark.parametrize(("count", "headers"), [(1, 9), (3, 4), (2, 5)])
def test_headers_that_cost_nothing_on_the_wire_are_bounded(
    monkeypatch: pytest.MonkeyPatch, count: int, headers: int
) -> None:
    monkeypatch.setattr(records, "MAX_HEADERS_PER_BATCH", 8)
    made: list[Record] = [(n, 1, b"k", None, [("", b"")] * headers) for n in range(count)]
    batch = batch_builder.build(made, codec=compression.LZ4)
    with pytest.raises(BadBatch) as caught:
        records.records_of(batch)
    assert caught.value.error is ErrorCode.MESSAGE_TOO_LARGE
    monkeypatch.setattr(records, "MAX_HEADERS_PER_BATCH", headers * count)
    assert records.records_of(batch) == made


@pytest.mark.parametrize("size", [5, 31, 32, 100, 8_000, 9_000, 3_000_000])
def test_headers_are_counted_behind_records_of_any_length(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(records, "MAX_HEADERS_PER_BATCH", 8)
    before: list[Record] = [(0, 1, None, b"v" * size, []), (1, 1, b"k", None, [])]
    batch = bytes(batch_builder.build([*before, (2, 1, None, None, [("", b"")] * 9)]))
    assert max(claimed_headers(memoryview(batch), records.HEADER_SIZE, 16)) == 9
    with pytest.raises(BadBatch, match="headers at most"):
        records.records_of(batch)
    assert records.records_of(bytes(batch_builder.build(before))) == before


def test_one_record_with_headers_without_end_is_not_even_parsed() -> None:
    many = 600_000
    body = bytearray(b"\x00\x00\x00\x01\x01")  # times, offset, key and value of none
    number = 2 * many
    while number:
        body.append(number & 0x7F | (0x80 if number > 0x7F else 0))
        number >>= 7
    body += bytes(2 * many)
    size, length = 2 * len(body), bytearray()
    while size:
        length.append(size & 0x7F | (0x80 if size > 0x7F else 0))
        size >>= 7
    batch = sound(1, compression.NONE)[: records.HEADER_SIZE] + length + body
    began = tracemalloc.start() or tracemalloc.get_traced_memory()[0]
    with pytest.raises(BadBatch) as caught:
        records.records_of(batch)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert caught.value.error is ErrorCode.MESSAGE_TOO_LARGE
    assert most - began < many


@pytest.mark.parametrize("codec", range(5))
def test_a_stored_batch_is_sent_at_the_offset_it_got(codec: int) -> None:
    batch = bytes(batch_builder.build([(n, 50, None, b"v", []) for n in range(3)], codec=codec))
    sent = b"".join(batch_builder.batch_at_offset(batch, 10**15, 4, None))
    header = records.check_produced(sent)
    assert (header.base_offset, header.leader_epoch) == (10**15, 4)
    assert [row[0] for row in records.records_of(sent)] == [10**15, 10**15 + 1, 10**15 + 2]
    assert sent[records.MAGIC_AT :] == batch[records.MAGIC_AT :]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("size", [1, batch_builder.COPIED])
def test_a_batch_is_sent_from_whatever_holds_it(
    kind: Callable[[bytes], records.Buffer], size: int
) -> None:
    batch = bytes(batch_builder.build([(0, 50, None, b"v" * size, [])]))
    sent = b"".join(batch_builder.batch_at_offset(kind(batch), 7, 4, None))
    assert sent == b"".join(batch_builder.batch_at_offset(batch, 7, 4, None))
    assert records.check_produced(sent).base_offset == 7


def test_a_stamped_batch_has_the_moment_of_its_append() -> None:
    batch = bytes(batch_builder.build([(n, 50, None, b"v", []) for n in range(2)]))
    sent = b"".join(batch_builder.batch_at_offset(batch, 9, 0, 777))
    header = records.check_produced(sent)
    assert header.attributes & records.LOG_APPEND_TIME
    assert header.max_timestamp == 777
    assert [row[1] for row in records.records_of(sent)] == [777, 777]


def test_a_batch_may_reach_past_its_last_record() -> None:
    batch = batch_builder.build([(5, 50, None, b"v", [])])
    batch_builder.extend_to(batch, 12)
    assert records.read_header(batch).last_offset_delta == 7
    assert [row[0] for row in records.records_of(batch)] == [5]


def test_consecutive_batches_are_found() -> None:
    one, other = bytes(sound(1)), bytes(sound(2))
    assert list(batches_in(one + other)) == [one, other]
    assert list(batches_in(one + other[:-1])) == [one]
    assert list(batches_in(one + bytes(30))) == [one]
    assert list(batches_in(b"")) == []
