"""Counters of a cleaning pass, and the sparse index of the compacted copy."""

import msgspec

from korvet.calls.partition import CleanBeginReply

INDEX_BYTES = 65536
MAX_ROWS = 8000
"""Max rows: one script writes them all. In a larger copy they are further apart."""


class Outcome(msgspec.Struct):
    """Result of a pass over the entries below `limit`."""

    limit: int = -1
    kept: int = 0
    removed: int = 0
    size: int = 0
    records: int = 0
    tombstones: bool = False
    rows: list[str] = []


class CleanedIndex:
    """Sparse index of the compacted copy, built while entries are added."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, int, int, int]] = []
        self._step = INDEX_BYTES
        self._indexed = -INDEX_BYTES
        self._newest = -1

    def note(self, outcome: Outcome, offset: int, newest: int, size: int, count: int) -> None:
        """Count an entry that stays and begins at `offset`; add an index row if one is due."""
        if outcome.size - self._indexed >= self._step:
            if len(self._rows) == MAX_ROWS:
                self._rows, self._step = self._rows[::2], 2 * self._step
            self._rows.append((offset, self._newest, outcome.size, outcome.records))
            self._indexed = outcome.size
        self._newest = max(self._newest, newest)
        outcome.size += size
        outcome.records += count
        outcome.kept += 1

    def rows(self, start_bytes: int, start_records: int, plan: CleanBeginReply) -> list[str]:
        """Return the index rows in the format of lua/lib/index.lua.

        Values are capped by the log's counters at the limit, which do not count foreign entries:
        rows must never decrease.
        """
        return [
            f"{offset}:{min(newest, plan.newest)}:{min(start_bytes + size, plan.bytes)}"
            f":{min(start_records + count, plan.records)}"
            for offset, newest, size, count in self._rows
        ]
