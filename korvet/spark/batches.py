"""Records of batches, column by column: no object per record.

A batch's records stand one behind another, each with its length before it. Where each begins has to
be walked through; everything else is read for all records of many batches at once, out of their
bodies joined.

Rules
- Records equally long as their neighbour are walked through in one step.
- Nothing that a body says of itself is believed: each record has to end where the next begins, and
  its key, value and headers inside it. Unlike where that is not so, or a body ends early.
"""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from korvet.spark import arrays
from korvet.spark.alike import Bytes, Ints, Unlike

WORTH = 16
"""Records that a step over equally long ones has to pass to be faster than one by one."""
PAUSE = 128
"""So many records are walked through one by one before another such step is tried."""
MOST_HEADERS = 64
"""Records with more are not for this module: it takes a round for each."""
_VARINT_BYTES = 10
_SLOT = 2**31


class Body(msgspec.Struct, frozen=True):
    """The records of one batch, decompressed, and what its header says of them."""

    data: Any
    count: int
    base: int
    first_timestamp: int


class Records(NamedTuple):
    """Records of batches, column by column; None for columns that were not asked for."""

    offsets: Ints
    times: Ints
    keys: Any
    values: Any
    headers: Any


def unpack(bodies: Sequence[Body], names: Collection[str], headers: Any = None) -> Records:
    """The records of the bodies in order. `headers` is the Arrow type of that column."""
    data = b"".join([body.data for body in bodies])
    counts = [body.count for body in bodies]
    if len(data) >= _SLOT:
        raise Unlike
    found = _Columns(data, _begins(data, bodies))
    shift = np.repeat([body.base for body in bodies], counts)
    first = np.repeat([body.first_timestamp for body in bodies], counts)
    return Records(
        found.offset_deltas + shift,
        found.timestamp_deltas + first,
        found.binary(*found.key) if "key" in names else None,
        found.binary(*found.value) if "value" in names else None,
        found.headers(headers) if "headers" in names else None,
    )


def _begins(data: bytes, bodies: Sequence[Body]) -> Ints:
    """Where each record begins, its length first, and where the last ends."""
    raw = np.frombuffer(data, dtype=np.uint8)
    pieces: list[Any] = [[]]
    start = 0
    for body in bodies:
        end = start + len(body.data)
        try:
            _walk(data, raw, start, end, body.count, pieces)
        except IndexError:
            raise Unlike from None
        start = end
    pieces[-1].append(start)
    return np.concatenate([np.array(each, dtype=np.int64) for each in pieces])


def _walk(data: bytes, raw: Bytes, at: int, end: int, left: int, pieces: list[Any]) -> None:
    """Adds where the records begin that stand from `at` to `end`, of which `left` are left, to the
    last piece, a list, or pieces behind it. IndexError, too, where there are fewer."""
    singly = pieces[-1]
    last, pause = 0, 1
    while left:
        # A zigzag varint, mostly of one or two bytes.
        size = data[at]
        if size < 0x80:
            size = 1 + (size >> 1)
        elif data[at + 1] < 0x80:
            size = 2 + ((size & 0x7F | data[at + 1] << 7) >> 1)
        else:
            size = _long(data, at)
        pause -= 1
        if size == last and pause < 0 and left >= WORTH:
            run = _run(raw, at, end, size, left)
            if len(run) < WORTH:
                pause = PAUSE
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
            raise Unlike
    if at != end:
        raise Unlike


def _run(raw: Bytes, at: int, end: int, size: int, most: int) -> Ints:
    """The beginnings from `at` on of records of that size: each says how long it is, and so where
    the next begins."""
    rows = min(most, (end - at) // size)
    if not rows:
        raise Unlike
    same = np.ones(rows, dtype=bool)
    place = at
    while True:
        byte = raw[place]
        same &= raw[place : at + rows * size : size] == byte
        if byte < 0x80:
            break
        place += 1
    wrong = int(np.argmin(same))
    return np.arange(at, at + (rows if same[wrong] else wrong) * size, size)


def _long(data: bytes, at: int) -> int:
    """The size of the record at `at`, its length taken along."""
    raw = 0
    for n in range(_VARINT_BYTES):
        raw |= (data[at + n] & 0x7F) << 7 * n
        if data[at + n] < 0x80:
            return n + 1 + (raw >> 1)
    raise Unlike


class _Columns:
    """What stands in the records that begin there."""

    def __init__(self, data: bytes, begins: Ints) -> None:
        self._data = data
        self._raw: Bytes = np.frombuffer(data, dtype=np.uint8)
        self._ends = ends = begins[1:]
        length, at = self._varints(begins[:-1])
        if (at + length != ends).any():
            raise Unlike
        self.timestamp_deltas, at = self._varints(at + 1)  # attributes, which have no meaning
        self.offset_deltas, at = self._varints(at)
        self.key, at = self._bytes(at)
        self.value, at = self._bytes(at)
        self._header_counts, self._at = self._varints(at)
        bare = self._header_counts == 0
        if (self._at > ends).any() or (self._at != ends)[bare].any():
            raise Unlike
        if self._header_counts.min(initial=0) < 0:
            raise Unlike

    def binary(self, starts: Ints, lengths: Ints) -> Any:
        """The contents as an Arrow array, null where the length is -1."""
        nulls = lengths < 0
        if nulls.all():
            return pa.nulls(len(starts), pa.binary())
        if not nulls.any():
            return arrays.cut(self._data, starts, starts + lengths, pa.binary())
        found = arrays.cut(self._data, starts, starts + np.maximum(lengths, 0), pa.binary())
        valid = np.packbits(~nulls, bitorder="little").tobytes()
        buffers = [pa.py_buffer(valid), *found.buffers()[1:]]
        return pa.Array.from_buffers(pa.binary(), len(found), buffers)

    def headers(self, type_: Any) -> Any:
        """The headers of each record as a list of pairs, null where there are none."""
        counts, total = self._header_counts, len(self._header_counts)
        most = int(counts.max(initial=0))
        if not most:
            return pa.nulls(total, type_)
        if most > MOST_HEADERS:
            raise Unlike
        which = np.arange(total)
        at = self._at
        rows, names, values = [], [], []
        for n in range(most):
            having = counts[which] > n
            self._end(at[~having], which[~having])
            which, at = which[having], at[having]
            name, at = self._bytes(at)
            value, at = self._bytes(at)
            if name[1].min() < 0 or (at > self._ends[which]).any():
                raise Unlike
            rows.append(which)
            names.append(name)
            values.append(value)
        self._end(at, which)
        # The first of all records, then the second, become one record's behind another's.
        order = np.argsort(np.concatenate(rows), kind="stable")
        starts, lengths = (np.concatenate(each)[order] for each in zip(*names, strict=True))
        texts = arrays.cut(self._data, starts, starts + lengths, pa.string())
        try:
            texts.validate(full=True)
        except pa.ArrowInvalid:
            raise Unlike from None
        contents = self.binary(*(np.concatenate(each)[order] for each in zip(*values, strict=True)))
        pairs = pa.StructArray.from_arrays([texts, contents], fields=list(type_.value_type))
        edges = np.zeros(total + 1, dtype=np.int32)
        np.cumsum(counts, out=edges[1:])
        valid = np.packbits(counts > 0, bitorder="little").tobytes()
        return pa.Array.from_buffers(
            type_, total, [pa.py_buffer(valid), pa.py_buffer(edges)], children=[pairs]
        )

    def _end(self, at: Ints, which: Ints) -> None:
        """These records end here."""
        if (at != self._ends[which]).any():
            raise Unlike

    def _bytes(self, at: Ints) -> tuple[tuple[Ints, Ints], Ints]:
        """Where contents begin whose length stands here and how long they are, -1 for null; and
        what comes behind them."""
        length, at = self._varints(at)
        if length.min(initial=0) < -1 or length.max(initial=0) > len(self._raw):
            raise Unlike
        return (at, length), at + np.maximum(length, 0)

    def _varints(self, at: Ints) -> tuple[Ints, Ints]:
        """The zigzag varints that stand here, and what comes behind them."""
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
            raise Unlike
        half: Ints = (found.view(np.uint64) >> np.uint64(1)).view(np.int64)
        return half ^ -(found & 1), at
