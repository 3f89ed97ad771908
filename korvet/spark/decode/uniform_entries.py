"""Entries with the same fields in the same order, as columns over the raw RESP bytes.

`FixedWidth` locates values of equal length per column as offsets in a row of a matrix;
`VariableWidth` locates values of any length as offsets in the reply.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from korvet.log.entry import DENSE_MS
from korvet.spark import arrow

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
_DENSE = b"%d-" % DENSE_MS
ENTRY_HEADER = b"*2\r\n"


class NotUniform(Exception):
    """The entries differ in their fields, or a value is not of the requested type."""


class ValueSpans(NamedTuple):
    """Start and end of the values of one column."""

    start: Any
    end: Any


class UniformEntries(ABC):
    """Entries as columns."""

    count: int
    columns: Mapping[bytes, ValueSpans]
    """The location of each field's values."""
    _ids: ValueSpans

    @abstractmethod
    def content(self, spans: ValueSpans, entry: int) -> bytes:
        """Return the value of one entry."""

    @abstractmethod
    def binary(self, spans: ValueSpans) -> Any:
        """Return the values as an Arrow array."""

    @abstractmethod
    def numbers(self, spans: ValueSpans) -> Ints:
        """Return the values as integers; raise NotUniform if one is not an integer."""

    @abstractmethod
    def _all(self, where: Any, byte: int) -> bool:
        """Return whether every entry has this byte at the location."""

    @property
    def last_id(self) -> bytes:
        """Return the id of the last entry."""
        return self.content(self._ids, -1)

    def ids(self) -> tuple[Ints, Ints]:
        """Return milliseconds and sequence number of each id.

        Ids ascend: if the first and the last are dense, all are. If they are as far apart as the
        number of entries, no id between them is missing and none need be parsed.
        """
        start, end = self._ids
        first, last = self.content(self._ids, 0), self.last_id
        dash = last.index(b"-")
        if last.startswith(_DENSE):
            if not first.startswith(_DENSE):
                raise NotUniform
            low, high = (int(each[len(_DENSE) :]) for each in (first, last))
            whole = high - low == self.count - 1
            return np.full(self.count, DENSE_MS), (
                np.arange(low, high + 1)
                if whole
                else self.numbers(ValueSpans(start + dash + 1, end))
            )
        if not self._all(start + dash, b"-"[0]):
            raise NotUniform
        return self.numbers(ValueSpans(start, start + dash)), self.numbers(
            ValueSpans(start + dash + 1, end)
        )


def parse_integers(texts: Any) -> Ints:
    """Parse an Arrow array of texts as integers; raise NotUniform if one is not an integer."""
    data = texts.buffers()[2]
    if data is not None and b"x" in data.to_pybytes().lower():
        raise NotUniform  # Arrow would parse hexadecimal
    try:
        return arrow.to_numpy(texts.cast(pa.int64()))
    except pa.ArrowInvalid:
        raise NotUniform from None


def parse_entry(entry: bytes) -> list[tuple[bytes, int, int]] | None:
    """Return name, start and end of an entry's id (name "") and of its values.

    Returns None if the bytes are not exactly one entry.
    """
    try:
        id_, at = _read_bulk_string(entry, len(ENTRY_HEADER))
        found = [(b"", at - 2 - len(id_), at - 2)]
        head, names = parse_field_names(entry[at:])
        at += len(head)
        for name, template in names:
            content, at = _read_bulk_string(entry, at + len(template) - 1)
            found.append((name, at - 2 - len(content), at - 2))
    except (ValueError, IndexError, NotUniform):
        return None
    return found if at == len(entry) and entry.startswith(ENTRY_HEADER) else None


def parse_field_names(first: bytes) -> tuple[bytes, Sequence[tuple[bytes, bytes]]]:
    """Return the RESP bytes before an entry's first field, and each field name.

    A field name comes with the constant bytes up to the length of its value.
    """
    try:
        at = first.index(b"\r\n") + 2
        head, fields = first[:at], int(first[1 : at - 2])
        found = []
        for _ in range(fields // 2):
            begun = at
            name, at = _read_bulk_string(first, at)
            found.append((name, first[begun : at + 1]))
            _, at = _read_bulk_string(first, at)
    except (ValueError, IndexError):
        raise NotUniform from None
    if len(dict(found)) != len(found):
        raise NotUniform
    return head, found


def _read_bulk_string(data: bytes, at: int) -> tuple[bytes, int]:
    """Return the bulk string at `at` and the position after it; raise IndexError at the end."""
    start = data.index(b"\r\n", at) + 2
    end = start + int(data[at + 1 : start - 2])
    if end + 2 > len(data):
        raise IndexError
    return data[start:end], end + 2
