"""Check the `record` layout: a record is stored as an entry's fields and read back unchanged."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from korvet.base.errors import ErrorCode
from korvet.testing import LuaRunner
from korvet.wire import compression, record_entries
from korvet.wire.record_entries import (
    MAX_HEADERS,
    append_time_of,
    decompressed,
    fields_of,
    record_of,
)
from korvet.wire.records import BadBatch, Record
from tests.lua.partition import Part

blobs = st.none() | st.binary(max_size=40)
headers = st.lists(st.tuples(st.text(max_size=8), blobs), max_size=3)
rows = st.lists(
    st.tuples(st.just(0), st.integers(0, 2**62), blobs, blobs, headers), min_size=1, max_size=6
)
few = settings(max_examples=40, deadline=None, derandomize=True, database=None)


def stored(made: list[Record], **how: int) -> list[Record]:
    """Append the records to a stream with log.append and read them back."""
    part = Part(LuaRunner(), mode="dense").create()
    reply = part.append(len(made), fields=fields_of(made, **how))
    assert reply.error == ErrorCode.NONE
    entries: Any = part.runner.command("XRANGE", part.keys.stream, "-", "+")
    return [
        record_of(offset, 0, fields)
        for offset, (_, fields) in zip(part.offsets(), entries, strict=True)
    ]


@few
@given(made=rows)
def test_a_record_is_read_back_unchanged(made: list[Record]) -> None:
    assert stored(made) == [(n, *row[1:]) for n, row in enumerate(made)]


@pytest.mark.parametrize("codec", range(1, 5), ids=compression.NAMES[1:])
@few
@given(made=rows)
def test_a_value_compressed_at_rest_is_read_back_unchanged(codec: int, made: list[Record]) -> None:
    made = [(0, time, key, value and value * 20, more) for _, time, key, value, more in made]
    back = stored(made, codec=codec, threshold=10)
    assert back == [(n, *row[1:]) for n, row in enumerate(made)]


@pytest.mark.parametrize("codec", range(5), ids=compression.NAMES)
@few
@given(made=rows)
def test_unpacked_fields_are_the_same_record_with_its_value_in_full(
    codec: int, made: list[Record]
) -> None:
    made = [(0, time, key, value and value * 20, more) for _, time, key, value, more in made]
    for row in made:
        fields: Any = [
            field if isinstance(field, bytes) else b"%d" % field
            for field in fields_of([row, (*row[:2], b"k", None, [("n", b"v")])], codec=codec)
        ]
        fields = fields[1 : int(fields[0]) + 1]
        plain = decompressed(fields)
        assert record_of(0, 0, plain) == record_of(0, 0, fields) == row
        assert not [name for name in plain[::2] if name.startswith(b"value.")]
        assert (plain is fields) == (b"value" in fields[::2] or row[3] is None)


@pytest.mark.parametrize(
    ("value", "name"),
    [(b"short", b"value"), (b"long" * 300, b"value.lz4"), (bytes(range(256)), b"value")],
)
def test_only_values_that_get_shorter_are_compressed(value: bytes, name: bytes) -> None:
    part = Part(LuaRunner(), mode="dense").create()
    part.append(
        1, fields=fields_of([(0, 1, None, value, [])], codec=compression.LZ4, threshold=100)
    )
    ((_, fields),) = part.runner.command("XRANGE", part.keys.stream, "-", "+")  # type: ignore[misc]
    assert name in fields[::2]


@pytest.mark.parametrize(
    ("fields", "record"),
    [
        ([b"key", b"k", b"value", b"v"], (5, 99, b"k", b"v", [])),
        ([b"value", b""], (5, 99, None, b"", [])),
        ([b"key", b""], (5, 99, b"", None, [])),
        ([b"nothing", b"known"], (5, 99, None, None, [])),
        ([b"timestamp", b"12"], (5, 12, None, None, [])),
        ([b"timestamp", b"noon"], (5, 99, None, None, [])),
        ([b"timestamp", b"9" * 30], (5, 99, None, None, [])),
        ([b"timestamp", b"-1"], (5, -1, None, None, [])),
        ([b"header.a", b"1", b"header.a", b"2"], (5, 99, None, None, [("a", b"1"), ("a", b"2")])),
        ([b"null.header.n", b"ignored"], (5, 99, None, None, [("n", None)])),
        ([b"header.\xff", b"1"], (5, 99, None, None, [("\ufffd", b"1")])),
        ([b"append.time", b"7", b"value", b"v"], (5, 7, None, b"v", [])),
        ([b"append.time", b"7", b"timestamp", b"12"], (5, 7, None, None, [])),
        ([b"value.lz4", b"no lz4 at all"], (5, 99, None, b"no lz4 at all", [])),
    ],
)
def test_any_foreign_entry_is_a_record(fields: list[bytes], record: Record) -> None:
    assert record_of(5, 99, fields) == record


def test_the_moment_of_the_append_is_the_first_field() -> None:
    assert append_time_of([b"append.time", b"77", b"value", b"v"]) == 77
    assert append_time_of([b"value", b"v"]) is None
    assert append_time_of([]) is None


def test_headers_without_end_are_refused() -> None:
    many = [("h", b"")] * (MAX_HEADERS + 1)
    with pytest.raises(BadBatch) as caught:
        fields_of([(0, 1, None, b"v", many)])
    assert caught.value.error is ErrorCode.INVALID_RECORD
    assert stored([(0, 1, None, b"v", many[1:])])[0][4] == many[1:]


def test_fields_of_a_batch_are_no_more_than_redis_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert record_entries.MAX_FIELDS < 2**20 - 100
    monkeypatch.setattr(record_entries, "MAX_FIELDS", 20)
    made: list[Record] = [(n, 1, b"k", b"v", [("h", b"")]) for n in range(3)]
    assert len(fields_of(made[:2])) == 18
    with pytest.raises(BadBatch) as caught:
        fields_of(made)
    assert caught.value.error is ErrorCode.MESSAGE_TOO_LARGE
