"""Records of one batch that look alike, cut out of it as matrices: no object per record.

A batch's records stand one behind another, each with its length before it. Where neighbours have
the same length and their key and value are equally long, they form a matrix of bytes: its columns
are checked (every length prefix, every key and value length, no headers), and then key and value
are two slices of it. A run ends where the offset delta or the timestamp delta takes another byte.
Batches that fall into short runs are not for this module.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

SHORTEST = 32
"""Runs shorter than this on average are slower than decoding record by record."""

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


class Field(NamedTuple):
    """Keys or values: their bytes one behind another, and how long each is; -1 is null."""

    data: list[Bytes]
    lengths: list[tuple[int, int]]
    """(how many, of which length) in order."""


class Records(NamedTuple):
    """The records of a batch, column by column."""

    timestamp_deltas: Ints
    offset_deltas: Ints
    keys: Field
    values: Field


class _Shape(NamedTuple):
    """Where things stand within a record: its size, and the columns that must not vary."""

    size: int
    timestamp: tuple[int, int]
    offset: tuple[int, int]
    key: tuple[int, int]
    value: tuple[int, int]


def decode(body: Bytes, count: int) -> Records | None:
    """The records, or None for a batch that this is not for."""
    at, done, runs = 0, 0, 0
    times: list[Ints] = []
    offsets: list[Ints] = []
    keys, values = Field([], []), Field([], [])
    while done < count:
        shape = _shape(body, at)
        if shape is None or at + shape.size > len(body):
            return None
        run = _run(body, at, shape, count - done)
        runs += 1
        if runs > 4 and (done + len(run)) < SHORTEST * runs:
            return None
        times.append(_varints(run, *shape.timestamp))
        offsets.append(_varints(run, *shape.offset))
        _take(keys, run, *shape.key)
        _take(values, run, *shape.value)
        done += len(run)
        at += shape.size * len(run)
    if at != len(body):
        return None
    return Records(np.concatenate(times), np.concatenate(offsets), keys, values)


def _shape(body: Bytes, at: int) -> _Shape | None:
    """The shape of the record at `at`; None for headers, or what is no record."""
    head = bytes(body[at : at + 64])
    try:
        length, i = _varint(head, 0)
        size = i + length
        i += 1
        timestamp = i
        _, i = _varint(head, i)
        offset = i
        _, i = _varint(head, i)
        key_length, key = _varint(head, i)
        after = key + max(key_length, 0)
        tail = bytes(body[at + after : at + after + 6])
        value_length, step = _varint(tail, 0)
    except IndexError:
        return None
    value = after + step
    end = value + max(value_length, 0)
    if end + 1 != size or at + end >= len(body) or body[at + end] != 0:
        return None
    return _Shape(size, (timestamp, offset), (offset, i), (key, key_length), (value, value_length))


def _run(body: Bytes, at: int, shape: _Shape, most: int) -> Bytes:
    """The rows from `at` on that have the shape: a matrix with at least one row."""
    size = shape.size
    rows = min(most, (len(body) - at) // size)
    matrix = body[at : at + rows * size].reshape(rows, size)
    first = matrix[0]
    same = np.ones(rows, dtype=bool)
    time, offset = shape.timestamp, shape.offset
    key, value = shape.key, shape.value
    # Length prefix and attributes; key length; value length; the count of headers.
    fixed = (
        (0, time[0]),
        (offset[1], key[0]),
        (key[0] + max(key[1], 0), value[0]),
        (size - 1, size),
    )
    for low, high in fixed:
        for column in range(low, high):
            same &= matrix[:, column] == first[column]
    for low, high in (time, offset):
        for column in range(low, high):
            same &= (matrix[:, column] & 0x80) == (first[column] & 0x80)
    wrong = int(np.argmin(same))
    return matrix if same[wrong] else matrix[:wrong]


def _varints(run: Bytes, low: int, high: int) -> Ints:
    """The zigzag varints that stand in these columns."""
    raw = np.zeros(len(run), dtype=np.uint64)
    for n, column in enumerate(range(low, high)):
        raw |= (run[:, column] & np.uint8(0x7F)).astype(np.uint64) << np.uint64(7 * n)
    half: Ints = (raw >> np.uint64(1)).astype(np.int64)
    return half ^ -((raw & np.uint64(1)).astype(np.int64))


def _take(field: Field, run: Bytes, at: int, length: int) -> None:
    field.lengths.append((len(run), length))
    if length > 0:
        field.data.append(np.ascontiguousarray(run[:, at : at + length]).reshape(-1))


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint and where it ends. IndexError where the bytes do."""
    raw = shift = 0
    while True:
        byte = data[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), at
        shift += 7
        if shift > 63:
            raise IndexError
