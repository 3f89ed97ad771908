"""Entries whose values have any length, parsed in parallel, one field at a time.

If every entry has the same fields in the same order, entries differ only in lengths and values:

    *2 $<n> <id> *6 $3 key $<n> <bytes> $5 value $<n> <bytes> $9 timestamp $<n> <bytes>

Rules
- Find candidates for entry starts by their first bytes, then verify: each entry must end exactly
  where the next starts, and all constant bytes are compared.
- Entries that differ from the first in constant bytes form another group, parsed separately.
- A column is an Arrow array over the reply's buffer, from which the values are taken.
"""

from typing import Any

import numpy as np
import pyarrow as pa

from korvet.spark import arrow
from korvet.spark.decode.uniform_entries import (
    ENTRY_HEADER,
    Bytes,
    Ints,
    NotUniform,
    UniformEntries,
    ValueSpans,
    parse_field_names,
    parse_integers,
)

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
