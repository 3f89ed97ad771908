"""Check that records of any shape as columns equal those of the compiled reader."""

import random
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from korvet.spark.columns import ALWAYS, arrow_schema
from korvet.spark.decode.batch_records import MAX_VECTORIZED_HEADERS, BatchBody, decode_records
from korvet.spark.decode.uniform_entries import NotUniform
from korvet.wire import batch_builder, records
from korvet.wire.records import Record

NAMES = (*ALWAYS, "headers")
HEADERS = arrow_schema(NAMES).field("headers").type

few = settings(max_examples=100, deadline=None, derandomize=True, database=None)
texts = st.none() | st.binary(max_size=5) | st.binary(min_size=60, max_size=200)
headers = st.lists(st.tuples(st.text(max_size=4), texts), max_size=3)
times = st.integers(0, 2**41) | st.integers(1_700_000_000_000, 1_700_000_000_200)
shapes = st.tuples(times, texts, texts, headers)
batches = st.lists(
    st.lists(shapes, min_size=1, max_size=5).map(lambda found: found * 7)
    | st.lists(shapes, min_size=1, max_size=20),
    min_size=1,
    max_size=5,
)


def numbered(found: list[Any]) -> list[Record]:
    return [(n, *each) for n, each in enumerate(found)]


def body_of(batch: bytes, base: int) -> BatchBody:
    header = records.read_header(batch)
    return BatchBody(
        memoryview(batch)[records.HEADER_SIZE :], header.records, base, header.first_timestamp
    )


def rows(bodies: list[BatchBody], names: tuple[str, ...] = NAMES) -> list[Record]:
    """Return the decoded columns record by record."""
    found = decode_records(bodies, names, HEADERS)
    for column in (found.keys, found.values, found.headers):
        column.validate(full=True)
    pairs = [
        [(each["key"], each["value"]) for each in row or []] for row in found.headers.to_pylist()
    ]
    columns = (found.offsets, found.times, found.keys.to_pylist(), found.values.to_pylist(), pairs)
    return list(zip(*columns, strict=True))


@few
@given(batches)
def test_columns_equal_the_records_of_the_compiled_reader(shapes: list[Any]) -> None:
    found = [bytes(batch_builder.build(numbered(each))) for each in shapes]
    bodies = [body_of(batch, 1000 * n) for n, batch in enumerate(found)]
    wanted = [
        (1000 * n + record[0], *record[1:])
        for n, batch in enumerate(found)
        for record in records.records_of(batch)
    ]
    assert rows(bodies) == wanted


def test_long_runs_of_equal_records_and_their_ends_are_found() -> None:
    draw = random.Random(7)
    shapes = [
        (1_700_000_000_000 + n // 300, b"%05d" % n, draw.randbytes(60 if n % 1000 else 61), [])
        for n in range(10_000)
    ]
    batch = bytes(batch_builder.build(numbered(shapes)))
    assert rows([body_of(batch, 0)]) == records.records_of(batch)


def test_a_compacted_batch_keeps_the_offsets_of_its_remaining_records() -> None:
    left = [(n, 5, b"k", b"v%d" % n, []) for n in (0, 3, 4, 700, 70_000)]
    batch = bytes(batch_builder.build(left))
    assert rows([body_of(batch, 50)]) == [(50 + n, *rest) for n, *rest in left]


def test_only_requested_columns_are_decoded() -> None:
    batch = bytes(batch_builder.build([(0, 5, b"k", b"v", [("h", b"x")])]))
    found = decode_records([body_of(batch, 0)], {"value"}, None)
    assert (found.keys, found.headers) == (None, None)
    assert found.values.to_pylist() == [b"v"]


def test_too_many_or_invalid_headers_are_decoded_record_by_record() -> None:
    many: Record = (0, 5, b"k", b"v", [("h", b"x")] * (MAX_VECTORIZED_HEADERS + 1))
    with pytest.raises(NotUniform):
        decode_records([body_of(bytes(batch_builder.build([many])), 0)], NAMES, HEADERS)
    plain: Record = (0, 5, b"k", b"v", [("hhhh", b"x")])
    batch = bytes(batch_builder.build([plain])).replace(b"hhhh", b"\xff\xfe\xfd\xfc")
    with pytest.raises(NotUniform):
        decode_records([body_of(batch, 0)], NAMES, HEADERS)


@pytest.mark.parametrize("seed", range(40))
def test_bytes_that_are_changed_are_never_read_beyond_their_records(seed: int) -> None:
    draw = random.Random(seed)
    shapes = [
        (5 + n, draw.choice([None, b"key"]), draw.randbytes(draw.choice([9, 9, 80])), [("h", b"x")])
        for n in range(60)
    ]
    whole = bytes(batch_builder.build(numbered(shapes)))[records.HEADER_SIZE :]
    for _ in range(100):
        changed = bytearray(whole)
        for _ in range(draw.randint(1, 3)):
            changed[draw.randrange(len(changed))] = draw.choice([0, 1, 0x7F, 0x80, 0xFF])
        data = bytes(changed[: draw.choice([len(changed), draw.randrange(len(changed))])])
        try:
            found = decode_records([BatchBody(data, 60, 0, 5)], NAMES, HEADERS)
        except NotUniform:
            continue
        for column in (found.keys, found.values, found.headers):
            column.validate(full=True)
            assert len(column) == 60


def test_a_wrong_record_count_in_a_batch_is_rejected() -> None:
    batch = bytes(batch_builder.build(numbered([(5, b"k", b"v", [])] * 50)))
    body = body_of(batch, 0)
    for count in (1, 49, 51, 2**31 - 1):
        with pytest.raises(NotUniform):
            decode_records([msgspec.structs.replace(body, count=count)], NAMES, HEADERS)


def test_nothing_but_nulls_becomes_a_column_of_nulls() -> None:
    batch = bytes(batch_builder.build(numbered([(5, None, None, [])] * 50)))
    found = decode_records([body_of(batch, 0)], NAMES, HEADERS)
    assert found.keys.equals(pa.nulls(50, pa.binary()))
    assert found.headers.equals(pa.nulls(50, HEADERS))
