"""Entries whose values have equal lengths, as a matrix of bytes with an entry per row.

The first row gives the location of each value; all bytes between values must be equal in all
rows. A column is then a slice of the matrix.
"""

from typing import Any, Self

import numpy as np
import pyarrow as pa

from korvet.spark.decode.uniform_entries import (
    Bytes,
    Ints,
    UniformEntries,
    ValueSpans,
    parse_entry,
    parse_integers,
)

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
        size, rest = divmod(len(body), count)
        found = None if rest else parse_entry(bytes(body[:size]))
        if found is None:
            return None
        (_, *ids), *fields = found
        made = cls(
            np.frombuffer(body, dtype=np.uint8).reshape(count, size),
            ValueSpans(*ids),
            {name: ValueSpans(start, end) for name, start, end in fields},
        )
        previous = 0
        for start, end in [made._ids, *made.columns.values(), (size, size)]:
            if not made._is_constant(previous, start):
                return None
            previous = end
        return made

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

    def _all(self, place: Any, byte: int) -> bool:
        return bool((self._rows[:, place] == byte).all())

    def _is_constant(self, start: int, end: int) -> bool:
        """Return whether these bytes are equal in all rows.

        Compares up to eight bytes as one number: numpy's cost per row exceeds the comparison.
        """
        size = self._rows.shape[1]
        width = next((each for each in _WORDS if each <= end - start), 1)
        for place in {*range(start, end - width, width), end - width} if start < end else ():
            words: Any = np.ndarray(self.count, f"u{width}", self._rows, place, size)
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
