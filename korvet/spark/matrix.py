"""Entries whose contents are equally long, as a matrix of bytes: an entry a row.

Where things stand is found in the first row; what stands between the contents has to be the same
in all of them. A column is a slice of the matrix, and a place in it an offset in the row.
"""

from typing import Any, Self

import numpy as np
import pyarrow as pa

from korvet.spark.alike import Alike, Bytes, Ints, Spans, contents_of, numbers_in

_WORDS = (8, 4, 2, 1)
_MOST_DIGITS = 18
"""So many always fit into 64 bits."""
_ZERO = b"0"[0]


class Matrix(Alike):
    """Rows of one size with their contents at the same places."""

    def __init__(self, rows: Bytes, ids: Spans, columns: dict[bytes, Spans]) -> None:
        self._rows = rows
        self.count = len(rows)
        self._ids = ids
        self.columns = columns

    @classmethod
    def of(cls, body: memoryview, count: int) -> Self | None:
        """These entries, if they are so."""
        size, rest = divmod(len(body), count)
        found = None if rest else contents_of(bytes(body[:size]))
        if found is None:
            return None
        (_, *ids), *fields = found
        made = cls(
            np.frombuffer(body, dtype=np.uint8).reshape(count, size),
            Spans(*ids),
            {name: Spans(start, end) for name, start, end in fields},
        )
        behind = 0
        for start, end in [made._ids, *made.columns.values(), (size, size)]:
            if not made._is_template(behind, start):
                return None
            behind = end
        return made

    def content(self, spans: Spans, entry: int) -> bytes:
        return self._rows[entry, spans.start : spans.end].tobytes()

    def binary(self, spans: Spans) -> Any:
        return self._arrow(spans, pa.binary())

    def numbers(self, spans: Spans) -> Ints:
        width = spans.end - spans.start
        digits = np.ascontiguousarray(self._rows[:, spans.start : spans.end].T) - np.uint8(_ZERO)
        if not 0 < width <= _MOST_DIGITS or (digits > 9).any():
            return numbers_in(self._arrow(spans, pa.string()))
        fixed, found = 0, np.zeros(self.count, dtype=np.int64)
        for n, digit in enumerate(digits, 1):
            worth = 10 ** (width - n)
            if (digit == digit[0]).all():
                fixed += worth * int(digit[0])
            else:
                found += digit * np.int64(worth)
        return found + fixed

    def _all(self, place: Any, byte: int) -> bool:
        return bool((self._rows[:, place] == byte).all())

    def _is_template(self, start: int, end: int) -> bool:
        """Whether these bytes are the same in all rows: up to eight are compared as one number, as
        numpy spends more on a row than on what it compares there."""
        size = self._rows.shape[1]
        width = next((each for each in _WORDS if each <= end - start), 1)
        for place in {*range(start, end - width, width), end - width} if start < end else ():
            words: Any = np.ndarray(self.count, f"u{width}", self._rows, place, size)
            if (words != words[0]).any():
                return False
        return True

    def _arrow(self, spans: Spans, type_: Any) -> Any:
        width = spans.end - spans.start
        data = np.ascontiguousarray(self._rows[:, spans.start : spans.end])
        edges = np.arange(self.count + 1, dtype=np.int32) * np.int32(width)
        return pa.Array.from_buffers(
            type_, self.count, [None, pa.py_buffer(edges), pa.py_buffer(data)]
        )
