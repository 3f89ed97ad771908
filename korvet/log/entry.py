"""Entries of a partition's stream, and the conversion between their ids and offsets.

It is that of lua/lib/entry_id.lua and lua/lib/offset_map.lua:

time   id = (offset >> bits) "-" (offset & (2^bits - 1)).
dense  id = DENSE_MS "-" offset. Hardly an id is above: `XADD stream *` therefore takes the next
       dense offset.
bytes  as dense.

`OffsetMap` converts all ids of a log, those of other programs included. The functions convert
natural ids, which are all those of most logs.
"""

from bisect import bisect_right
from operator import attrgetter

import msgspec

DENSE_MS = 2**63 - 1
LAST = 2**53
"""The end of all offsets: scripts calculate with doubles."""
NATURAL_END = 2**53 - 2**48
"""The end of the offsets of natural ids: an entry just below leaves enough for all later ones."""


class Entry(msgspec.Struct, frozen=True):
    """A stream entry with the first and the last offset it holds."""

    first: int
    last: int
    fields: list[bytes]
    milliseconds: int
    """When it was appended, by its id; when it was read, if ids hold no time."""
    size: int


def entry_id(mode: str, bits: int, offset: int) -> str:
    """Return the natural id of the entry that holds `offset`."""
    if mode == "time":
        return f"{offset >> bits}-{offset & ((1 << bits) - 1)}"
    return f"{DENSE_MS}-{offset}"


def natural_offset(mode: str, bits: int, milliseconds: int, sequence: int) -> int | None:
    """Return the offset of a natural id; None if it has none."""
    if mode == "time":
        offset = milliseconds << bits | sequence
        return offset if sequence < 1 << bits and offset < NATURAL_END else None
    return sequence if milliseconds == DENSE_MS and sequence < NATURAL_END else None


def split_id(raw: bytes) -> tuple[int, int]:
    """Return the milliseconds and the sequence of an id."""
    milliseconds, _, sequence = raw.partition(b"-")
    return int(milliseconds), int(sequence)


class _Row(msgspec.Struct, frozen=True):
    """A row of `shifts`: what ids from its own one on are."""

    id: tuple[int, int]
    offset: int
    kind: str

    @classmethod
    def parse(cls, text: str) -> "_Row":
        partition, offset, kind = text.split(":")
        return cls(split_id(partition.encode()), int(offset), kind)


_BY_ID, _BY_OFFSET = attrgetter("id"), attrgetter("offset")


class OffsetMap:
    """The ids and offsets of one log, given `shifts` of its state."""

    def __init__(self, mode: str, bits: int, shifts: bytes | None = None) -> None:
        self.mode = mode
        self.bits = bits
        self.shifts = shifts or b""
        self._rows = [_Row.parse(each) for each in self.shifts.decode().split(",") if each]

    @property
    def is_natural(self) -> bool:
        """Return whether all entries are at natural ids."""
        return not self._rows

    def offset(self, milliseconds: int, sequence: int) -> int | None:
        """Return the offset of an id; None if it has none."""
        if self._rows:
            at = bisect_right(self._rows, (milliseconds, sequence), key=_BY_ID)
            row = self._rows[at - 1] if at else None
            if row is not None and row.kind == "none":
                return None
            if row is not None and row.kind == "run" and row.id[0] == milliseconds:
                offset = row.offset + sequence - row.id[1]
                return offset if offset < LAST else None
        return natural_offset(self.mode, self.bits, milliseconds, sequence)

    def offset_after(self, milliseconds: int, sequence: int) -> int:
        """Return the lowest offset above an id, whether or not it has one; -1 if there is none."""
        own = self.offset(milliseconds, sequence)
        if own is not None:
            return own + 1
        at = bisect_right(self._rows, (milliseconds, sequence), key=_BY_ID)
        if at < len(self._rows):
            return self._rows[at].offset
        after = natural_offset(self.mode, self.bits, milliseconds + 1, 0)
        return -1 if after is None or self.mode != "time" else after

    def id(self, offset: int) -> str:
        """Return the id that an entry with this offset has; only lower ids have lower offsets."""
        row = self._row(offset)
        if row is not None and row.kind != "natural":
            return f"{row.id[0]}-{row.id[1] + offset - row.offset}"
        return entry_id(self.mode, self.bits, offset)

    def start(self, offset: int) -> str:
        """Return the first id to read for the entries from an offset on, as XRANGE takes it.

        At the log's end that is every id above the last entry: the next one may be no natural one.
        """
        row = self._row(offset)
        if offset <= 0 or (row is not None and row.offset == offset):
            return self.id(max(offset, 0))
        return f"({self.id(offset - 1)}"

    def _row(self, offset: int) -> _Row | None:
        at = bisect_right(self._rows, offset, key=_BY_OFFSET)
        return self._rows[at - 1] if at else None
