"""Records and bytes in and out by topic.

Rules
- Every topic with traffic has counts, so that a row never restarts; a deleted topic has none.
- At most `max_topics` topics are shown: those with the most bytes, of equal ones the first by name.
- Totals include the topics that are not shown, and deleted ones.
"""

from collections.abc import Callable, Collection, Mapping
from heapq import nsmallest

from korvet.base.metrics.families import Labels

RECORDS_IN, BYTES_IN, RECORDS_OUT, BYTES_OUT = range(4)


class TopicTraffic:
    """The counts of each topic: records and bytes appended, records and bytes fetched."""

    def __init__(self) -> None:
        self.max_topics: Callable[[], int] = lambda: 1000
        """Returns the max number of topics to show."""
        self._rows: dict[str, list[int]] = {}
        self._deleted = [0, 0, 0, 0]

    def of(self, topic: str) -> list[int]:
        """Return the counts of the topic, to be added to."""
        row = self._rows.get(topic)
        if row is None:
            row = self._rows[topic] = [0, 0, 0, 0]
        return row

    def keep(self, topics: Collection[str]) -> None:
        """Drop the rows of all other topics."""
        for name in [name for name in self._rows if name not in topics]:
            row = self._rows.pop(name)
            self._deleted = [old + new for old, new in zip(self._deleted, row, strict=True)]

    def total(self, count: int) -> int:
        """Return the sum of one of the counts over all topics."""
        return self._deleted[count] + sum(row[count] for row in self._rows.values())

    def shown(self, count: int) -> Mapping[Labels, float]:
        """Return one of the counts by topic, for the topics that are shown."""
        return {(name,): self._rows[name][count] for name in self._names()}

    def not_shown(self) -> int:
        """Return the number of topics with traffic that are not shown."""
        return max(0, len(self._rows) - self.max_topics())

    def _names(self) -> Collection[str]:
        max_topics, rows = self.max_topics(), self._rows
        if len(rows) <= max_topics:
            return rows

        def rank(name: str) -> tuple[int, str]:
            row = rows[name]
            return -row[BYTES_IN] - row[BYTES_OUT], name

        return nsmallest(max_topics, rows, key=rank)
