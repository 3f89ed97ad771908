"""Decode the records of batches column by column, without an object per record.

The records of a batch follow one another, each preceded by its length. Record starts are found
sequentially; everything else is decoded for all records of several joined batches at once.

Rules
- Skip over neighbouring records of equal length in one step.
- Validate everything: a record must end where the next starts, with key, value and headers inside.
  Raise NotUniform if not, or if a body ends early.
"""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from korvet.spark import arrow
from korvet.spark.decode.uniform_entries import Bytes, Ints, NotUniform

MIN_VECTORIZED = 16
"""Min records that a step over equal lengths must skip to be faster than scanning one by one."""
SCALAR_RECORDS = 128
"""Records to scan one by one before the next such step is tried."""
MAX_VECTORIZED_HEADERS = 64
"""Max headers per record to decode in columns: each header takes one pass."""
_VARINT_BYTES = 10
_RECORD_STRIDE = 2**31


class BatchBody(msgspec.Struct, frozen=True):
    """The decompressed records of one batch, with fields of its header."""

    data: Any
    count: int
    base: int
    first_timestamp: int


class RecordColumns(NamedTuple):
    """Records as columns; None for columns that were not requested."""

    offsets: Ints
    times: Ints
    keys: Any
    values: Any
    headers: Any


def decode_records(
    bodies: Sequence[BatchBody], names: Collection[str], headers: Any = None
) -> RecordColumns:
    """Decode the records of the bodies in order. `headers` is the Arrow type of that column."""
    data = b"".join([body.data for body in bodies])
    counts = [body.count for body in bodies]
    if len(data) >= _RECORD_STRIDE:
        raise NotUniform
    found = _ColumnReader(data, _find_record_starts(data, bodies))
    shift = np.repeat([body.base for body in bodies], counts)
    first = np.repeat([body.first_timestamp for body in bodies], counts)
    return RecordColumns(
        found.offset_deltas + shift,
        found.timestamp_deltas + first,
        found.binary(*found.key) if "key" in names else None,
        found.binary(*found.value) if "value" in names else None,
        found.headers(headers) if "headers" in names else None,
    )


def _find_record_starts(data: bytes, bodies: Sequence[BatchBody]) -> Ints:
    """Return where each record's length field starts, and where the last record ends."""
    raw = np.frombuffer(data, dtype=np.uint8)
    pieces: list[Any] = [[]]
    start = 0
    for body in bodies:
        end = start + len(body.data)
        try:
            _scan_records(data, raw, start, end, body.count, pieces)
        except IndexError:
            raise NotUniform from None
        start = end
    pieces[-1].append(start)
    return np.concatenate([np.array(each, dtype=np.int64) for each in pieces])


def _scan_records(data: bytes, raw: Bytes, at: int, end: int, left: int, pieces: list[Any]) -> None:
    """Append the starts of `left` records between `at` and `end` to `pieces`.

    Starts go to the last piece, a list, or to new pieces. Raises NotUniform or IndexError if there
    are fewer records.
    """
    singly = pieces[-1]
    last, pause = 0, 1
    while left:
        # A zigzag varint, usually of one or two bytes.
        size = data[at]
        if size < 0x80:
            size = 1 + (size >> 1)
        elif data[at + 1] < 0x80:
            size = 2 + ((size & 0x7F | data[at + 1] << 7) >> 1)
        else:
            size = _record_size(data, at)
        pause -= 1
        if size == last and pause < 0 and left >= MIN_VECTORIZED:
            run = _scan_equal_records(raw, at, end, size, left)
            if len(run) < MIN_VECTORIZED:
                pause = SCALAR_RECORDS
            singly = []
            pieces += run, singly
            left -= len(run)
            at = int(run[-1]) + size
        else:
            singly.append(at)
            left -= 1
            at += size
            last = size
        if at > end:
            raise NotUniform
    if at != end:
        raise NotUniform


def _scan_equal_records(raw: Bytes, at: int, end: int, size: int, max_records: int) -> Ints:
    """Return the starts of consecutive records of this size, beginning at `at`."""
    rows = min(max_records, (end - at) // size)
    if not rows:
        raise NotUniform
    same = np.ones(rows, dtype=bool)
    start = at
    while True:
        byte = raw[start]
        same &= raw[start : at + rows * size : size] == byte
        if byte < 0x80:
            break
        start += 1
    wrong = int(np.argmin(same))
    return np.arange(at, at + (rows if same[wrong] else wrong) * size, size)


def _record_size(data: bytes, at: int) -> int:
    """Return the size of the record at `at`, including its length field."""
    raw = 0
    for n in range(_VARINT_BYTES):
        raw |= (data[at + n] & 0x7F) << 7 * n
        if data[at + n] < 0x80:
            return n + 1 + (raw >> 1)
    raise NotUniform


class _ColumnReader:
    """Decodes the columns of records at the given starts."""

    def __init__(self, data: bytes, begins: Ints) -> None:
        self._data = data
        self._raw: Bytes = np.frombuffer(data, dtype=np.uint8)
        self._ends = ends = begins[1:]
        length, at = self._varints(begins[:-1])
        if (at + length != ends).any():
            raise NotUniform
        self.timestamp_deltas, at = self._varints(at + 1)  # skip the unused attributes byte
        self.offset_deltas, at = self._varints(at)
        self.key, at = self._bytes(at)
        self.value, at = self._bytes(at)
        self._header_counts, self._at = self._varints(at)
        bare = self._header_counts == 0
        if (self._at > ends).any() or (self._at != ends)[bare].any():
            raise NotUniform
        if self._header_counts.min(initial=0) < 0:
            raise NotUniform

    def binary(self, starts: Ints, lengths: Ints) -> Any:
        """Return values as an Arrow array, null if the length is -1."""
        nulls = lengths < 0
        if nulls.all():
            return pa.nulls(len(starts), pa.binary())
        if not nulls.any():
            return arrow.binary_array(self._data, starts, starts + lengths, pa.binary())
        found = arrow.binary_array(self._data, starts, starts + np.maximum(lengths, 0), pa.binary())
        valid = np.packbits(~nulls, bitorder="little").tobytes()
        buffers = [pa.py_buffer(valid), *found.buffers()[1:]]
        return pa.Array.from_buffers(pa.binary(), len(found), buffers)

    def headers(self, type_: Any) -> Any:
        """Return each record's headers as a list of pairs, null if there are none."""
        counts, total = self._header_counts, len(self._header_counts)
        highest = int(counts.max(initial=0))
        if not highest:
            return pa.nulls(total, type_)
        if highest > MAX_VECTORIZED_HEADERS:
            raise NotUniform
        which = np.arange(total)
        at = self._at
        rows, names, values = [], [], []
        for n in range(highest):
            having = counts[which] > n
            self._expect_end(at[~having], which[~having])
            which, at = which[having], at[having]
            name, at = self._bytes(at)
            value, at = self._bytes(at)
            if name[1].min() < 0 or (at > self._ends[which]).any():
                raise NotUniform
            rows.append(which)
            names.append(name)
            values.append(value)
        self._expect_end(at, which)
        # Reorder from "first header of all records, then second" to record by record.
        order = np.argsort(np.concatenate(rows), kind="stable")
        starts, lengths = (np.concatenate(each)[order] for each in zip(*names, strict=True))
        texts = arrow.binary_array(self._data, starts, starts + lengths, pa.string())
        try:
            texts.validate(full=True)
        except pa.ArrowInvalid:
            raise NotUniform from None
        contents = self.binary(*(np.concatenate(each)[order] for each in zip(*values, strict=True)))
        pairs = pa.StructArray.from_arrays([texts, contents], fields=list(type_.value_type))
        edges = np.zeros(total + 1, dtype=np.int32)
        np.cumsum(counts, out=edges[1:])
        valid = np.packbits(counts > 0, bitorder="little").tobytes()
        return pa.Array.from_buffers(
            type_, total, [pa.py_buffer(valid), pa.py_buffer(edges)], children=[pairs]
        )

    def _expect_end(self, at: Ints, which: Ints) -> None:
        """Raise NotUniform unless these records end at `at`."""
        if (at != self._ends[which]).any():
            raise NotUniform

    def _bytes(self, at: Ints) -> tuple[tuple[Ints, Ints], Ints]:
        """Return start and length (-1: null) of values whose length is at `at`, and what follows.

        The second result is the position after each value.
        """
        length, at = self._varints(at)
        if length.min(initial=0) < -1 or length.max(initial=0) > len(self._raw):
            raise NotUniform
        return (at, length), at + np.maximum(length, 0)

    def _varints(self, at: Ints) -> tuple[Ints, Ints]:
        """Return the zigzag varints at `at` and the positions after them."""
        byte = self._raw.take(at, mode="clip")
        found: Ints = (byte & np.uint8(0x7F)).astype(np.int64)
        at = at + 1
        more = byte > 0x7F
        for n in range(1, _VARINT_BYTES):
            if not more.any():
                break
            byte = np.where(more, self._raw.take(at, mode="clip"), np.uint8(0))
            found |= (byte & np.uint8(0x7F)).astype(np.int64) << np.int64(7 * n)
            at = at + more
            more = byte > 0x7F
        if more.any():
            raise NotUniform
        half: Ints = (found.view(np.uint64) >> np.uint64(1)).view(np.int64)
        return half ^ -(found & 1), at
