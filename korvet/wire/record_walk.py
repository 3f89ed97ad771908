"""Check the records of a produced batch: every length, count and offset, without decoding them.

Rules
- The records fill the section exactly; there are as many as the header says.
- Record i has offset delta i. Apache Kafka requires that of compressed batches only.
- Key, value and headers fill their record exactly. A length is -1 for null, or at least 0; Kafka
  takes any negative one, which librdkafka cannot read.
- A header's name is UTF-8: Python's clients cannot read another.
- A record's attributes, which have no meaning, are below 128: Python's clients read a varint there.
- LuaJIT walks 1,000 records in about 20 us, by their address: a Lua string would be a copy. The
  walk in Python takes 50 times as long: it serves platforms on which lupa has no LuaJIT, and
  timestamp deltas that are no exact Lua number.
"""

import os
import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from importlib.resources import files
from typing import Any, NamedTuple

from korvet.base.buffers import work_buffer
from korvet.wire.records import (
    MAX_DECODED_RECORDS,
    MAX_HEADERS_PER_BATCH,
    BadBatch,
    Buffer,
    claimed_headers,
    invalid,
    read_varint,
    too_many_headers,
    too_many_records,
)

_DECODE, _TOO_MANY, _INVALID = -1, -2, -3
"""Results of the Lua code below 0."""
_VARINT, _VARLONG = 5, 10

Walk = Callable[[int, int, int, int], float]
"""Takes the records' address and size, their number, and the headers they may have together."""
Survey = Callable[[int, int], tuple[float, float, float, float, float]]
"""Takes the records' address and number."""


class Extremes(NamedTuple):
    """The extremes of a batch's records: ms after its first timestamp, counts, and bytes."""

    oldest: int
    newest: int
    keyless: int
    longest: int
    headers: int


def check_records(section: Buffer, count: int) -> int:
    """Return the highest timestamp delta of the section's `count` records, in ms.

    Raises BadBatch: INVALID_RECORD, MESSAGE_TOO_LARGE above MAX_HEADERS_PER_BATCH.
    """
    native = native_walk()
    if native is None:
        return walk_in_python(section, count)
    size = len(section)
    buffer = work_buffer(size)
    found = native[0](buffer.take(section), size, count, MAX_HEADERS_PER_BATCH)
    if found >= 0:
        return int(found)
    if found == _DECODE:
        return walk_in_python(section, count)
    if found == _TOO_MANY:
        raise too_many_headers()
    raise _invalid(_INVALID - int(found), count)


def survey(section: Buffer, count: int) -> Extremes:
    """Return what is limited, of records that `check_records` has accepted."""
    native = native_walk()
    if native is not None:
        buffer = work_buffer(len(section))  # kept until LuaJIT has read its memory
        found = native[1](buffer.take(section), count)
        if found[3]:
            return Extremes(*map(int, found))
    deltas, keyless, sizes = zip(*rows_of(section, count), strict=True)
    headers = sum(claimed_headers(memoryview(section), 0, 0))
    return Extremes(min(deltas), max(deltas), sum(keyless), max(sizes), headers)


def rows_of(section: Buffer, count: int) -> Iterator[tuple[int, bool, int]]:
    """Yield the timestamp delta of each accepted record, whether it has no key, and its bytes.

    Reads lengths only: no key and no value is copied. The bytes are those of key, value, headers.
    """
    view, at = memoryview(section), 0
    for _ in range(count):
        length, at = read_varint(view, at, _VARINT)
        last = at + length
        delta, at = read_varint(view, at + 1, _VARLONG)
        _, at = read_varint(view, at, _VARINT)
        key, at = read_varint(view, at, _VARINT)
        value, at = read_varint(view, at + max(key, 0), _VARINT)
        headers, at = read_varint(view, at + max(value, 0), _VARINT)
        size = max(key, 0) + max(value, 0)
        for _ in range(2 * headers):
            length, at = read_varint(view, at, _VARINT)
            size, at = size + max(length, 0), at + max(length, 0)
        yield delta, key < 0, size
        at = last


@cache
def native_walk() -> tuple[Walk, Survey] | None:
    """Return the walks compiled by LuaJIT, or None if lupa has no LuaJIT on this platform."""
    source = files("korvet.wire").joinpath("record_walk.lua").read_bytes()
    try:
        luajit21 = _luajit()
    except ImportError:
        return None
    runtime = luajit21.LuaRuntime(encoding=None, register_eval=False, register_builtins=False)
    try:
        walks: tuple[Walk, Survey] = runtime.execute(source)
    except luajit21.LuaError:  # LuaJIT without FFI
        return None
    return walks


def _luajit() -> Any:
    """Return lupa's LuaJIT module, bound to its own copy of Lua's functions.

    Without RTLD_DEEPBIND they would be those of another Lua that this process has loaded, as
    fakeredis does.
    """
    flags = sys.getdlopenflags() if sys.platform != "win32" else 0
    deep = getattr(os, "RTLD_DEEPBIND", 0)
    if deep:
        sys.setdlopenflags(os.RTLD_NOW | deep)
    try:
        return import_module("lupa.luajit21")
    finally:
        if deep:
            sys.setdlopenflags(flags)


def walk_in_python(section: Buffer, count: int) -> int:
    """Return the highest timestamp delta, as `check_records` does."""
    if count > MAX_DECODED_RECORDS:
        raise too_many_records(count, MAX_DECODED_RECORDS)
    data = bytes(section)
    at, highest, headers = 0, 0, MAX_HEADERS_PER_BATCH
    for index in range(count):
        try:
            at, delta, number = _record(data, at, index)
        except (ValueError, IndexError):
            raise _invalid(index, count) from None
        highest = max(highest, delta)
        headers -= number
        if headers < 0:
            raise too_many_headers()
    if at != len(data):
        raise _invalid(count, count)
    return highest


def _record(data: bytes, at: int, index: int) -> tuple[int, int, int]:
    """Return the position after a record, its timestamp delta, and its number of headers.

    Raises ValueError or IndexError.
    """
    length, at = read_varint(data, at, _VARINT)
    last = at + length
    if length < 0 or last > len(data) or data[at] >= 0x80:
        raise ValueError
    delta, at = read_varint(data, at + 1, _VARLONG)
    offset, at = read_varint(data, at, _VARINT)
    if offset != index:
        raise ValueError
    at = _skip(data, _skip(data, at, last), last)
    number, at = read_varint(data, at, _VARINT)
    if not 0 <= number <= (last - at) // 2:
        raise ValueError
    if _after_headers(data, at, last, number) != last:
        raise ValueError
    return last, delta, number


def _after_headers(data: bytes, at: int, last: int, count: int) -> int:
    for _ in range(count):
        if at >= last:
            raise ValueError
        length, at = read_varint(data, at, _VARINT)
        if length < 0 or at + length >= last:
            raise ValueError
        data[at : at + length].decode()
        at = _skip(data, at + length, last + 1)
    return at


def _skip(data: bytes, at: int, last: int) -> int:
    """Return the position after a nullable field, which is below `last`."""
    length, at = read_varint(data, at, _VARINT)
    at += max(length, 0)
    if length < -1 or at >= last:
        raise ValueError
    return at


def _invalid(index: int, count: int) -> BadBatch:
    what = "bytes follow the last record" if index == count else f"record {index} does not parse"
    return invalid(f"A batch of {count} records is not stored: {what}.")
