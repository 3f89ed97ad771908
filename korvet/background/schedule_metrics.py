"""Metrics of scheduled records: how many wait, and how late the first of them is.

One broker process at a time updates them, by lease; the others report no rows.
"""

import asyncio

from korvet.keys import Keys
from korvet.metrics import Metrics
from korvet.store.async_store import AsyncStore
from korvet.topics.table import Topic, TopicTable

ROWS = 1000
"""Max topics of the metrics; those with the most waiting records are shown."""
AT_ONCE = 100


class ScheduleGauges:
    """Rows of the metrics as of the last update."""

    def __init__(self, store: AsyncStore, keys: Keys, topics: TopicTable, metrics: Metrics) -> None:
        self._store = store
        self._keys = keys
        self._topics = topics
        self._rows: list[tuple[str, int, int, float]] = []
        metrics.scheduled_records.ask = lambda: {(row[0],): row[1] for row in self._rows}
        metrics.scheduled_bytes.ask = lambda: {(row[0],): row[2] for row in self._rows}
        metrics.scheduled_overdue_seconds.ask = lambda: {(row[0],): row[3] for row in self._rows}

    async def update(self) -> None:
        """Update the rows: one for each topic with delivery.schedule.enable."""
        topics = await self._topics.all()
        rows = [await self._row(topic) for topic in topics if topic.policy.schedules]
        self._rows = sorted(rows, key=lambda row: -row[1])[:ROWS]

    def clear(self) -> None:
        """Report no rows: another process does."""
        self._rows = []

    async def _row(self, topic: Topic) -> tuple[str, int, int, float]:
        """Return the topic's name, waiting records and bytes, and seconds overdue."""
        records, size, overdue_ms = 0, 0, 0
        for first in range(0, topic.partitions, AT_ONCE):
            numbers = range(first, min(first + AT_ONCE, topic.partitions))
            calls = (
                self._keys.partition(topic.name, number, topic.id).schedule_list(most=0)
                for number in numbers
            )
            for reply in await asyncio.gather(*map(self._store.run, calls)):
                records, size = records + reply.records, size + reply.size
                overdue_ms = max(overdue_ms, reply.overdue_ms)
        return topic.name, records, size, overdue_ms / 1000
