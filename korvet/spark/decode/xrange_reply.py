"""An XRANGE reply as columns, read from the raw RESP bytes without an object per entry.

Entries that differ too much in their fields are parsed one by one by the ordinary parser.

Entries whose values have equal lengths are a matrix of bytes with an entry per row. The first row
gives the location of each value; all bytes between values must be equal in all
rows. A column is then a slice of the matrix.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
import pyarrow as pa

from korvet.log.entry import OffsetMap, split_id
from korvet.spark.decode.uniform_entries import (
    Bytes,
    Ints,
    NotUniform,
    UniformEntries,
    ValueSpans,
    group_by_fields,
    parse_entry,
    parse_integers,
)
from korvet.store.raw_reply import parsed

_WORDS = (8, 4, 2, 1)
_MAX_DIGITS = 18
"""Any number with this many digits fits into 64 bits."""
_ZERO = b"0"[0]


class FixedWidth(UniformEntries):
    """Entries of equal size with values at equal positions."""

    def __init__(self, rows: Bytes, ids: ValueSpans, columns: dict[bytes, ValueSpans]) -> None:
        self._rows = rows
        self.count = len(rows)
        self._ids = ids
        self.columns = columns

    @classmethod
    def of(cls, body: memoryview, count: int) -> Self | None:
        """Return the entries, or None if they do not all have the layout of the first."""
        size, remainder = divmod(len(body), count)
        found = None if remainder else parse_entry(bytes(body[:size]))
        if found is None:
            return None
        (_, *ids), *fields = found
        reply = cls(
            np.frombuffer(body, dtype=np.uint8).reshape(count, size),
            ValueSpans(*ids),
            {name: ValueSpans(start, end) for name, start, end in fields},
        )
        previous = 0
        for start, end in [reply._ids, *reply.columns.values(), (size, size)]:
            if not reply._is_constant(previous, start):
                return None
            previous = end
        return reply

    def content(self, spans: ValueSpans, entry: int) -> bytes:
        return self._rows[entry, spans.start : spans.end].tobytes()

    def binary(self, spans: ValueSpans) -> Any:
        return self._arrow(spans, pa.binary())

    def numbers(self, spans: ValueSpans) -> Ints:
        width = spans.end - spans.start
        digits = np.ascontiguousarray(self._rows[:, spans.start : spans.end].T) - np.uint8(_ZERO)
        if not 0 < width <= _MAX_DIGITS or (digits > 9).any():
            return parse_integers(self._arrow(spans, pa.string()))
        fixed, found = 0, np.zeros(self.count, dtype=np.int64)
        for n, digit in enumerate(digits, 1):
            factor = 10 ** (width - n)
            if (digit == digit[0]).all():
                fixed += factor * int(digit[0])
            else:
                found += digit * np.int64(factor)
        return found + fixed

    def _all(self, where: Any, byte: int) -> bool:
        return bool((self._rows[:, where] == byte).all())

    def _is_constant(self, start: int, end: int) -> bool:
        """Return whether these bytes are equal in all rows.

        Compares up to eight bytes as one number: numpy's cost per row exceeds the comparison.
        """
        size = self._rows.shape[1]
        width = next((each for each in _WORDS if each <= end - start), 1)
        for at in {*range(start, end - width, width), end - width} if start < end else ():
            words: Any = np.ndarray(self.count, f"u{width}", self._rows, at, size)
            if (words != words[0]).any():
                return False
        return True

    def _arrow(self, spans: ValueSpans, type_: Any) -> Any:
        width = spans.end - spans.start
        data = np.ascontiguousarray(self._rows[:, spans.start : spans.end])
        edges = np.arange(self.count + 1, dtype=np.int32) * np.int32(width)
        return pa.Array.from_buffers(
            type_, self.count, [None, pa.py_buffer(edges), pa.py_buffer(data)]
        )


class XRangeReply:
    """The entries of a reply as columns or as rows. Valid as long as its buffer is."""

    def __init__(self, reply: memoryview) -> None:
        self.places: OffsetMap | None = None
        """The ids and offsets of the log; None if all ids are natural."""
        self._reply = reply
        head = bytes(reply[:24])
        self._body = head.index(b"\r\n") + 2
        self._count = int(head[1 : self._body - 2])

    @classmethod
    def of(cls, rows: list[Any]) -> Self:
        """Return a reply of entries that are already parsed."""
        reply = cls(memoryview(b"*%d\r\n" % len(rows)))
        reply.rows = rows
        reply.groups = None
        return reply

    def __len__(self) -> int:
        return self._count

    @property
    def size(self) -> int:
        """Return the number of bytes that Redis sent, or 0 for parsed entries."""
        return len(self._reply) - self._body

    @cached_property
    def rows(self) -> list[Any]:
        """Return the entries as rows: [id, [field, value, ...]]."""
        found: list[Any] = parsed(self._reply)
        return found

    @cached_property
    def groups(self) -> Sequence[UniformEntries] | None:
        """Return the entries as columns, one group per list of fields, or None if they differ."""
        if not self._count:
            return None
        body = self._reply[self._body :]
        fixed = FixedWidth.of(body, self._count)
        if fixed is not None:
            return [fixed]
        try:
            return group_by_fields(body, self._count)
        except NotUniform:
            return None

    @property
    def uniform(self) -> UniformEntries | None:
        """Return the entries as columns if all have the same fields, else None."""
        return self.groups[0] if self.groups is not None and len(self.groups) == 1 else None

    @property
    def last_id(self) -> bytes:
        """Return the id of the last entry. There must be one."""
        if self.groups is None:
            last: bytes = self.rows[-1][0]
            return last
        return max((kind.last_id for kind in self.groups), key=split_id)
