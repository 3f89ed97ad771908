"""A partition's state of one producer (lua/lib/producer_state.lua), and for how long it is kept."""

import re
from typing import NamedTuple, Self

WRAP = 2**31
"""Sequence numbers wrap to 0 here."""
ENDED = -2
"""In place of the first offset: a marker has ended the producer's newest transaction here."""
KEEP_MS = 366 * 86_400_000
"""Milliseconds for which a silent writer and its tasks' appends are kept."""
KEEP_JOB_MS = 7 * 86_400_000
"""Milliseconds for which the tasks of a finished job are kept: Spark may retry a task."""
IDS_FROM = 1 << 52
"""The first producer id of writers that may return; Lua counts exactly up to 2^53."""
JOB_IDS_FROM = 1 << 51
"""The first producer id of one-time jobs.

From this id on, a partition never takes a producer's later batch first (log.append).
"""
CLASSES = (JOB_IDS_FROM, KEEP_JOB_MS, IDS_FROM, KEEP_MS)
"""`classes` of log.expire_producers: tasks of jobs, and last those of writers that may return."""
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
