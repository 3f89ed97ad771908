"""How far the attempts of a task have come in a partition, as the script remembers it."""

import re
from typing import NamedTuple, Self

WRAP = 2**31
"""Sequence numbers count up to here and begin again."""
_ROW = re.compile(rb"(-?\d+):(-?\d+):\d+:([^@]*)(?:@.*)?")


class Progress(NamedTuple):
    """A producer's row of a partition (lua/lib/producer.lua)."""

    epoch: int
    next: int
    """The sequence number of the record that comes next."""
    batches: list[tuple[int, int, int]]
    """First and last sequence number and first offset of the last five."""

    @classmethod
    def of(cls, row: bytes) -> Self:
        """What the row says."""
        found = _ROW.fullmatch(row)
        assert found is not None, row
        epoch, following, batches = found.groups()
        known = [tuple(map(int, each.split(b"-"))) for each in batches.split(b",") if each]
        return cls(int(epoch), max(int(following), 0), [(a, b, c) for a, b, c in known])
