"""Entries with the same fields in the same order, as columns over the raw RESP bytes.

`FixedWidth` locates values of equal length per column as offsets in a row of a matrix;
`VariableWidth` locates values of any length as offsets in the reply, one field at a time. If every
entry has the same fields in the same order, entries differ only in lengths and values:

    *2 $<n> <id> *6 $3 key $<n> <bytes> $5 value $<n> <bytes> $9 timestamp $<n> <bytes>

Rules
- Find candidates for entry starts by their first bytes, then verify: each entry must end exactly
  where the next starts, and all constant bytes are compared.
- Entries that differ from the first in constant bytes form another group, parsed separately.
- A column is an Arrow array over the reply's buffer, from which the values are taken.
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


_CR, _LF, _ZERO = b"\r\n0"
_MAX_DIGITS = 10
MIN_GROUP = 100
"""Min average entries per group for columns to be faster than parsing one by one."""
MAX_GROUPS = 16


class MixedEntries(NotUniform):
    """The entries are of more than one group; `same` masks those like the first."""

    def __init__(self, same: Any) -> None:
        self.same = same


def group_by_fields(body: memoryview, count: int) -> list[UniformEntries]:
    """Return the reply's entries in groups with the same fields.

    Raises NotUniform if there are too many groups or bytes that are not an entry.
    """
    raw: Bytes = np.frombuffer(body, dtype=np.uint8)
    begins = _find_entry_starts(raw, count)
    left = [(begins, np.append(begins[1:], len(raw)))]
    max_groups = min(MAX_GROUPS, max(1, count // MIN_GROUP))
    found: list[UniformEntries] = []
    while left:
        if len(found) + len(left) > max_groups:
            raise NotUniform
        begins, ends = left.pop()
        try:
            found.append(VariableWidth(raw, begins, ends))
        except MixedEntries as mixed:
            left += [(begins[each], ends[each]) for each in (mixed.same, ~mixed.same)]
    return found


def _find_entry_starts(raw: Bytes, count: int) -> Ints:
    """Return where entries start; raise NotUniform unless there are `count` candidates."""
    found: Ints = np.flatnonzero(raw == ENTRY_HEADER[0])
    for n, byte in enumerate(ENTRY_HEADER[1:] + b"$", 1):
        found = found[raw.take(found + n, mode="clip") == byte]
    # A value may end with the bytes of an entry start: what precedes one is the end of a line.
    for n, byte in ((1, _LF), (2, _CR)):
        found = found[(found == 0) | (raw.take(found - n, mode="clip") == byte)]
    if len(found) == 2 * count:
        found = found[::2]  # the field list of an entry with one field looks like an entry start
    if len(found) != count or found[0]:
        raise NotUniform
    return found


class VariableWidth(UniformEntries):
    """Entries at the given starts and ends. Raises MixedEntries if their fields differ."""

    def __init__(self, raw: Bytes, begins: Ints, ends: Ints) -> None:
        self._body = raw
        self.count = len(begins)
        self.columns = {}
        at, self._ids = self._content(begins + 5)
        first, names = parse_field_names(raw[int(at[0]) : int(ends[0])].tobytes())
        at = self._expect(at, first)
        for name, template in names:
            at, self.columns[name] = self._content(self._expect(at, template))
        if (at != ends).any():
            raise NotUniform

    def content(self, spans: ValueSpans, entry: int) -> bytes:
        return bytes(self._body[spans.start[entry] : spans.end[entry]])

    def binary(self, spans: ValueSpans) -> Any:
        return arrow.binary_array(self._body, *spans, pa.binary())

    def numbers(self, spans: ValueSpans) -> Ints:
        return parse_integers(arrow.binary_array(self._body, *spans, pa.string()))

    def _all(self, where: Any, byte: int) -> bool:
        return bool((self._at(where) == byte).all())

    def _content(self, at: Ints) -> tuple[Ints, ValueSpans]:
        """Return the bulk strings whose lengths are at `at`, and the positions after them."""
        length = np.zeros(self.count, dtype=np.int64)
        for _ in range(_MAX_DIGITS):
            byte = self._at(at)
            ended = byte == _CR
            if ended.all():
                break
            digit = (byte - np.uint8(_ZERO)).astype(np.int64)
            if (digit[~ended] > 9).any():
                raise NotUniform
            length = np.where(ended, length, length * 10 + digit)
            at = at + ~ended
        start = at + 2
        end = start + length
        if (end > len(self._body)).any():
            raise NotUniform
        return end + 2, ValueSpans(start, end)

    def _expect(self, at: Ints, template: bytes) -> Ints:
        """Return the positions after the constant bytes, which every entry must have at `at`."""
        same = np.ones(self.count, dtype=bool)
        for n, byte in enumerate(template):
            same &= self._at(at + n) == byte
        if not same.all():
            raise MixedEntries(same)
        return at + len(template)

    def _at(self, places: Ints) -> Bytes:
        found: Bytes = self._body.take(places, mode="clip")
        return found
