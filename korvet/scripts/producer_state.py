"""A partition's state of one producer, parsed from its row (lua/lib/producer_state.lua)."""

import re
from typing import NamedTuple, Self

WRAP = 2**31
"""Sequence numbers wrap to 0 here."""
ENDED = -2
"""In place of the first offset: a marker has ended the producer's newest transaction here."""
_ROW = re.compile(rb"(-?\d+):(-?\d+):(\d+):([^@]*)(?:@\d+:(-?\d+))?")


class ProducerStateEntry(NamedTuple):
    """A field of the hash `producers`."""

    epoch: int
    next: int
    """The next expected sequence number."""
    time_ms: int
    batches: list[tuple[int, int, int]]
    """First and last sequence number and first offset of the last five, newest last.

    The offset is -1 if the batch has no consecutive ones.
    """
    first: int
    """The first offset of the newest transaction; -1 if there is none; ENDED."""

    @classmethod
    def of(cls, row: bytes) -> Self:
        """Parse a row."""
        found = _ROW.fullmatch(row)
        assert found is not None, row
        epoch, following, time_ms, batches, first = found.groups()
        known = [tuple(map(int, each.split(b"-"))) for each in batches.split(b",") if each]
        return cls(
            int(epoch),
            max(int(following), 0),
            int(time_ms),
            [(a, b, c) for a, b, c in known],
            int(first or -1),
        )
