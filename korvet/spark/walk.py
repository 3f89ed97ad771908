"""Entries whose contents are of any length, walked through side by side.

Where every entry has the same fields in the same order, the reply is one template in which only
lengths and contents differ:

    *2 $<n> <id> *6 $3 key $<n> <bytes> $5 value $<n> <bytes> $9 timestamp $<n> <bytes>

Rules
- Where an entry may begin is found by its first bytes; that it does is proven: each must end
  exactly where the next begins, and all that is template is compared.
- Entries that differ from the first in what should be template are of another kind, and are walked
  through by themselves.
- A column is an Arrow array over the reply itself, from which the contents are taken.
"""

from typing import Any

import numpy as np
import pyarrow as pa

from korvet.spark import arrays
from korvet.spark.alike import ENTRY, Alike, Bytes, Ints, Spans, Unlike, names_of, numbers_in

_CR, _LF, _ZERO = b"\r\n0"
_MOST_DIGITS = 10
WORTH = 100
"""So many entries a kind there must be on average for columns to be faster than one by one."""
MOST_KINDS = 16


class Apart(Unlike):
    """The entries are of more than one kind: `same` are those like the first so far."""

    def __init__(self, same: Any) -> None:
        self.same = same


def kinds_of(body: memoryview, count: int) -> list[Alike]:
    """The entries of a reply, those with the same fields together. Unlike where there are many
    kinds, or what is no entry."""
    raw: Bytes = np.frombuffer(body, dtype=np.uint8)
    begins = _begins(raw, count)
    left = [(begins, np.append(begins[1:], len(raw)))]
    most = min(MOST_KINDS, max(1, count // WORTH))
    found: list[Alike] = []
    while left:
        if len(found) + len(left) > most:
            raise Unlike
        begins, ends = left.pop()
        try:
            found.append(Walk(raw, begins, ends))
        except Apart as apart:
            left += [(begins[each], ends[each]) for each in (apart.same, ~apart.same)]
    return found


def _begins(raw: Bytes, count: int) -> Ints:
    """Where entries begin, if there are no more such places than entries."""
    found: Ints = np.flatnonzero(raw == ENTRY[0])
    for n, byte in enumerate(ENTRY[1:] + b"$", 1):
        found = found[raw.take(found + n, mode="clip") == byte]
    # Contents that end like the beginning of an entry stand before a line's end, too.
    for n, byte in ((1, _LF), (2, _CR)):
        found = found[(found == 0) | (raw.take(found - n, mode="clip") == byte)]
    if len(found) == 2 * count:
        found = found[::2]  # the fields of an entry with a single one begin like an entry
    if len(found) != count or found[0]:
        raise Unlike
    return found


class Walk(Alike):
    """The entries that begin and end there. Apart where they are not of one kind."""

    def __init__(self, raw: Bytes, begins: Ints, ends: Ints) -> None:
        self._body = raw
        self.count = len(begins)
        self.columns = {}
        at, self._ids = self._content(begins + 5)
        first, names = names_of(raw[int(at[0]) : int(ends[0])].tobytes())
        at = self._expect(at, first)
        for name, template in names:
            at, self.columns[name] = self._content(self._expect(at, template))
        if (at != ends).any():
            raise Unlike

    def content(self, spans: Spans, entry: int) -> bytes:
        return bytes(self._body[spans.start[entry] : spans.end[entry]])

    def binary(self, spans: Spans) -> Any:
        return arrays.cut(self._body, *spans, pa.binary())

    def numbers(self, spans: Spans) -> Ints:
        return numbers_in(arrays.cut(self._body, *spans, pa.string()))

    def _all(self, place: Any, byte: int) -> bool:
        return bool((self._at(place) == byte).all())

    def _content(self, at: Ints) -> tuple[Ints, Spans]:
        """The bulk strings whose lengths stand here, and what comes behind them."""
        length = np.zeros(self.count, dtype=np.int64)
        for _ in range(_MOST_DIGITS):
            byte = self._at(at)
            ended = byte == _CR
            if ended.all():
                break
            digit = (byte - np.uint8(_ZERO)).astype(np.int64)
            if (digit[~ended] > 9).any():
                raise Unlike
            length = np.where(ended, length, length * 10 + digit)
            at = at + ~ended
        start = at + 2
        end = start + length
        if (end > len(self._body)).any():
            raise Unlike
        return end + 2, Spans(start, end)

    def _expect(self, at: Ints, template: bytes) -> Ints:
        """What comes behind the template, which stands here in every entry."""
        same = np.ones(self.count, dtype=bool)
        for n, byte in enumerate(template):
            same &= self._at(at + n) == byte
        if not same.all():
            raise Apart(same)
        return at + len(template)

    def _at(self, places: Ints) -> Bytes:
        found: Bytes = self._body.take(places, mode="clip")
        return found
