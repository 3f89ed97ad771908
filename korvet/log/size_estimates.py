"""Expected sizes of a partition's entries, which decide how many to ask Redis for.

Rules
- The next entries are expected to be as large as those just before them. If this process has not
  read those, the average in the log's state is expected. The state has no sizes of foreign entries.
- If COUNT of the largest entries could far exceed the bytes asked for, the XRANGE gets an end from
  the sparse index, which knows bytes.
- A state older than STALE_S says nothing about entries appended since.
"""

from collections.abc import Sequence
from time import monotonic
from typing import TypeVar

import msgspec

from korvet.topics.table import Topic

MAX_ENTRIES = 2_000
"""Entries per XRANGE: 1 ms of Redis's time and 10 ms of a broker's, for which others wait. Larger
replies cost hardly less per entry."""
ROUND_BYTES = 8 << 20
"""An XRANGE whose reply could be larger, or eight times what is asked for, gets an end from the
index."""
UNKNOWN_SIZE = 1 << 16
"""Expected bytes of an entry of a log without a size."""
FEW_ENTRIES = 10
"""Entries to ask for at the end of a log whose state is stale."""
INDEX_BYTES = 1 << 16
"""Bytes between two rows of the index, at least."""
INDEX_ROWS = 64
"""Rows of the index per command."""
MAX_PARTITIONS = 100_000
MAX_OFFSETS = 10_000
STALE_S = 0.25

T = TypeVar("T")


class SizeEstimate(msgspec.Struct, frozen=True):
    """The sizes of a log's entries in bytes, its end, and its oldest open transaction."""

    average: float
    largest: int
    end: int
    stable: int | None
    """First offset of the oldest open transaction; -1 or None if there is none."""
    read_at: float

    def max_count(self, max_bytes: int) -> int:
        """Return how many entries cannot far exceed `max_bytes`, however large each is."""
        limit = max(min(ROUND_BYTES, 8 * max_bytes), max_bytes * 3 // 2)
        return max(1, limit // max(self.largest, 1))

    def may_exceed(self, count: int, max_bytes: int) -> bool:
        """Return whether that many entries could far exceed `max_bytes`."""
        return count > max(2, self.max_count(max_bytes))

    def count_at_end(self, max_bytes: int) -> int:
        """Return how many entries to ask for at the log's end, where new ones have any size."""
        limit = self.max_count(max_bytes)
        return min(FEW_ENTRIES, limit) if self.is_stale else limit

    @property
    def is_stale(self) -> bool:
        """Return whether entries of any size may have been appended since."""
        return monotonic() - self.read_at >= STALE_S


def count_for(max_bytes: int, average: float, max_count: int) -> int:
    """Return how many entries of that average size fit `max_bytes`, from 1 to `max_count`.

    One more would be read for nothing if all have that size: a tenth of a read of ten batches.
    """
    return max(1, min(int(max_bytes / max(average, 1.0)), max_count))


def index_rows_for(max_bytes: int) -> int:
    """Return how many rows of the index to ask for, to read about `max_bytes`."""
    return min(INDEX_ROWS, max_bytes // INDEX_BYTES + 3)


def range_end(rows: Sequence[bytes], max_bytes: int) -> int | None:
    """Return the last offset of about `max_bytes`, by the rows of the index after an offset.

    None if there are too few rows for that.
    """
    ends = [(int(offset), int(size)) for offset, _, size, _ in (row.split(b":") for row in rows)]
    if len(ends) < 2:
        return None
    # There may be no entry below the first row; there is one below the second.
    within = [offset for offset, size in ends[2:] if size - ends[0][1] <= max_bytes]
    return [ends[1][0], *within][-1] - 1


def _store(known: dict[tuple[str, int], T], topic: Topic, partition: int, value: T) -> None:
    """Store what is known of a partition; of at most MAX_PARTITIONS."""
    if len(known) > MAX_PARTITIONS:
        known.clear()
    known[topic.id, partition] = value


class SizeEstimates:
    """The estimates of the partitions this process reads, and the sizes it read last."""

    def __init__(self) -> None:
        self._by_partition: dict[tuple[str, int], SizeEstimate] = {}
        self._by_offset: dict[tuple[str, int, int], float] = {}
        self._local_starts: dict[tuple[str, int], int] = {}
        self._copied: dict[tuple[str, int], int] = {}
        self._densities: dict[tuple[str, int], float] = {}

    def learn(
        self,
        topic: Topic,
        partition: int,
        average: float,
        largest: int,
        end: int,
        stable: int | None,
    ) -> None:
        """Store the sizes of the log's state, read just now."""
        estimate = SizeEstimate(average, largest, end, stable, monotonic())
        _store(self._by_partition, topic, partition, estimate)

    def learn_local_start(self, topic: Topic, partition: int, offset: int) -> None:
        """Store from which offset on Redis has the records; those below are in segments."""
        _store(self._local_starts, topic, partition, offset)

    def learn_copied(self, topic: Topic, partition: int, offset: int) -> None:
        """Store up to which offset segments have the records; 0: there are none."""
        _store(self._copied, topic, partition, offset)

    def is_copied(self, topic: Topic, partition: int, offset: int) -> bool:
        """Return whether segments are known to have the records at the offset."""
        return offset < self._copied.get((topic.id, partition), 0)

    def is_remote(self, topic: Topic, partition: int, offset: int) -> bool:
        """Return whether the records at the offset are known to be in segments only."""
        return offset < self._local_starts.get((topic.id, partition), 0)

    def note_read(
        self, topic: Topic, partition: int, offset: int, average: float, density: float
    ) -> None:
        """Store the size of the entries just below `offset`: on average, and per offset."""
        _store(self._densities, topic, partition, density)
        position = topic.id, partition, offset
        self._by_offset.pop(position, None)
        if len(self._by_offset) >= MAX_OFFSETS:
            del self._by_offset[next(iter(self._by_offset))]
        self._by_offset[position] = average

    def was_read_to(self, topic: Topic, partition: int, offset: int) -> bool:
        """Return whether the entries just below the offset were read."""
        return (topic.id, partition, offset) in self._by_offset

    def get(self, topic: Topic, partition: int) -> SizeEstimate | None:
        """Return what the log's state said last; None if it was never read."""
        return self._by_partition.get((topic.id, partition))

    def bytes_behind(self, topic: Topic, partition: int, offset: int) -> float:
        """Return about how many bytes the log has from the offset on; 0 if it was never read."""
        found = self._by_partition.get((topic.id, partition))
        if found is None:
            return 0
        return (found.end - offset) * self._densities.get((topic.id, partition), 0.0)

    def is_open(self, topic: Topic, partition: int, offset: int) -> bool:
        """Return whether a transaction was open at or below the offset, by the last state."""
        found = self._by_partition.get((topic.id, partition))
        return found is not None and found.stable is not None and 0 <= found.stable <= offset

    def average(self, topic: Topic, partition: int, offset: int) -> float:
        """Return the expected size of an entry from the offset on."""
        average = self._by_offset.get((topic.id, partition, offset))
        if average is not None:
            return average
        found = self._by_partition.get((topic.id, partition))
        return (found and found.average) or UNKNOWN_SIZE
