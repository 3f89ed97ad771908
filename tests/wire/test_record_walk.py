"""Check that records which pass the validation of a produced batch are readable by clients."""

import warnings
from random import Random
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given, settings
from hypothesis import strategies as st

from korvet.base.errors import ErrorCode
from korvet.wire import batch_builder, compression, record_walk, records
from korvet.wire.records import BadBatch, Record
from tests.conformance import poison

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of its resources
    from kafka.record.memory_records import MemoryRecords

blobs = st.none() | st.binary(max_size=150)
made = st.lists(
    st.tuples(
        st.integers(0, 2**42),
        blobs,
        blobs,
        st.lists(st.tuples(st.text(max_size=8), blobs), max_size=3),
    ),
    min_size=1,
    max_size=80,
)
walks = pytest.mark.parametrize(
    "walk",
    [record_walk.check_records, record_walk.walk_in_python],
    ids=["native", "python"],
)


def outcome(walk: object, section: bytes | bytearray, count: int) -> object:
    """Return the walk's result, or its error and message."""
    try:
        return walk(section, count)  # type: ignore[operator]
    except BadBatch as error:
        return error.error, str(error)


def mutated(data: bytes, random: Random) -> bytes:
    """Return the bytes with up to two changes, insertions or deletions."""
    found = bytearray(data)
    for _ in range(random.randrange(3)):
        at = random.randrange(len(found))
        kind = random.randrange(4)
        if kind == 0:
            found[at] = random.randrange(256)
        elif kind == 1:
            found[at] ^= 1 << random.randrange(8)
        elif kind == 2:
            found.insert(at, random.randrange(256))
        elif len(found) > 1:
            del found[at]
    return bytes(found)


def test_luajit_runs_on_this_platform() -> None:
    assert record_walk.native_walk() is not None


@walks
@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(rows=made)
def test_what_clients_build_passes(walk: object, rows: list[tuple[object, ...]]) -> None:
    batch = batch_builder.build([(at, *row) for at, row in enumerate(rows)])  # type: ignore[misc]
    header = records.read_header(batch)
    delta = max(header.max_timestamp - header.first_timestamp, 0)
    assert outcome(walk, batch[records.HEADER_SIZE :], len(rows)) == delta


def test_both_walks_agree_on_damaged_records() -> None:
    random = Random(5)
    names = ["a", "ä", "日本", "x" * 70, ""]
    refused = 0
    for _ in range(400):
        rows: list[Record] = [
            (at, 1000 + random.randrange(2 ** random.randrange(1, 60)), None, b"v" * at, [])
            for at in range(random.randrange(1, 90))
        ]
        rows = [(*row[:4], [(random.choice(names), b"v")] * random.randrange(3)) for row in rows]
        section = bytes(batch_builder.build(rows)[records.HEADER_SIZE :])
        for _ in range(4):
            damaged = mutated(section, random)
            found = outcome(record_walk.check_records, damaged, len(rows))
            assert found == outcome(record_walk.walk_in_python, damaged, len(rows))
            refused += not isinstance(found, int)
    assert 400 < refused < 1600


@pytest.mark.parametrize("codec", range(5), ids=compression.NAMES)
def test_a_mutated_batch_is_refused_or_readable_by_every_client(codec: int) -> None:
    random = Random(codec)
    count, passed = 12, 0
    plain = batch_builder.build(
        [
            (at, 10**12 + at, None if at % 3 else b"key", b"value" * at, [("ä", None), ("h", b"v")])
            for at in range(count)
        ]
    )
    section = bytes(plain[records.HEADER_SIZE :])
    for _ in range(600):
        # The walk detects damage before compression; the codec detects damage after it.
        body = compression.compress(codec, mutated(section, random))
        if codec and random.random() < 0.5:
            body = mutated(compression.compress(codec, section), random)
        batch = poison.sealed(
            body, codec, records=count, last_offset_delta=count - 1, first_timestamp=10**12
        )
        try:
            header = records.check_produced(batch)
            record_walk.check_records(records.open_section(batch, header, 100_000), count)
        except BadBatch as error:
            assert error.error in (ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE)
            continue
        passed += 1
        assert [record.offset for record in DefaultRecordBatch(batch)] == list(range(count))
        (read,) = MemoryRecords(batch)
        assert [record.offset for record in read] == list(range(count))
    assert 50 < passed < 550


def test_headers_are_bounded_before_any_is_decoded() -> None:
    most = records.MAX_HEADERS_PER_BATCH
    for each, wanted in ((most, 0), (most + 1, ErrorCode.MESSAGE_TOO_LARGE)):
        section = poison.record(0, headers=poison.varint(each) + bytes((0, 1)) * each)
        found = outcome(record_walk.check_records, section, 1)
        assert (found[0] if isinstance(found, tuple) else found) == wanted


@walks
@pytest.mark.parametrize(
    "name",
    [b"\xff", b"\xc1\x80", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82"],
)
def test_a_header_name_that_python_cannot_decode_is_refused(walk: object, name: bytes) -> None:
    section = poison.three(headers=poison.pair(poison.field(name), poison.field(b"v")))
    found = outcome(walk, section, poison.COUNT)
    assert isinstance(found, tuple) and found[0] == ErrorCode.INVALID_RECORD


def test_the_buffer_for_decompressed_records_is_bounded() -> None:
    for codec in range(1, 5):
        for size in (5_000, 3_000_000):
            batch = batch_builder.build([(0, 1, None, bytes(size), [])], codec=codec)
            header = records.read_header(batch)
            assert len(records.open_section(batch, header, 4_000_000)) > size
            with pytest.raises(BadBatch) as caught:
                records.open_section(batch, header, size)
            assert caught.value.error is ErrorCode.MESSAGE_TOO_LARGE


def test_large_records_are_walked() -> None:
    batch = batch_builder.build([(at, 1, b"k", bytes(900_000), []) for at in range(5)])
    assert record_walk.check_records(memoryview(batch)[records.HEADER_SIZE :], 5) == 0


@settings(max_examples=50, deadline=None, derandomize=True, database=None)
@given(rows=made, first=st.integers(0, 2**42))
def test_a_survey_finds_the_extremes_of_all_records(rows: list[Any], first: int) -> None:
    found = [(at, *row) for at, row in enumerate([(first, None, b"v", []), *rows])]
    section = memoryview(batch_builder.build(found))[records.HEADER_SIZE :]
    record_walk.check_records(section, len(found))
    deltas = [row[1] - first for row in found]
    listed = list(record_walk.rows_of(section, len(found)))
    assert [row[0] for row in listed] == deltas
    assert [row[1] for row in listed] == [row[2] is None for row in found]
    assert [row[2] for row in listed] == [
        sum(len(part or b"") for part in (key, value))
        + sum(len(name.encode()) + len(text or b"") for name, text in headers)
        for _, _, key, value, headers in found
    ]
    survey = record_walk.survey(section, len(found))
    assert survey[:3] == (min(deltas), max(deltas), sum(row[2] is None for row in found))
    assert survey.longest >= max(row[2] for row in listed)
    assert survey.headers == sum(len(row[4]) for row in found)


def test_a_survey_reads_records_that_are_larger_than_the_threads_buffer() -> None:
    """The survey read memory that was free already, which ended the broker."""
    rows: list[Record] = [(n, n, b"k", b"v" * (24 << 20), [("h", b"")] * n) for n in range(2)]
    section = batch_builder.build(rows)[records.HEADER_SIZE :]
    assert record_walk.check_records(section, 2) == 1
    found = record_walk.survey(section, 2)
    assert (found.oldest, found.newest, found.keyless, found.headers) == (0, 1, 0, 1)
    assert 24 << 20 < found.longest < 25 << 20


def test_a_survey_takes_timestamps_that_are_no_exact_numbers() -> None:
    rows = [(0, 0, b"k", b"v", []), (1, 2**62 + 1, None, b"v", [])]
    section = memoryview(batch_builder.build(rows))[records.HEADER_SIZE :]
    assert record_walk.survey(section, 2) == (0, 2**62 + 1, 1, 2, 0)
