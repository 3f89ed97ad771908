"""Metrics of Redis, of scheduled records, and of the records that groups hold.

One broker process at a time updates them, by lease; the others report no rows.
"""

import asyncio

from korvet.base.metrics import Labels, Metrics
from korvet.groups.consumed import list_held
from korvet.scripts.keys import Keys
from korvet.store.async_store import AsyncStore
from korvet.topics.table import Topic, TopicTable


class RedisGauges:
    """Rows of the Redis metrics as of the last update."""

    def __init__(self, store: AsyncStore, keys: Keys, metrics: Metrics) -> None:
        self._store = store
        self._keys = keys
        self._counts = {"topics": 0, "transactional_ids": 0}
        self._metrics = metrics
        self._used: dict[Labels, float] = {}
        self._most: dict[Labels, float] = {}
        metrics.redis_used_memory.ask = lambda: self._used
        metrics.redis_max_memory.ask = lambda: self._most
        metrics.topics.ask = lambda: {(): self._counts["topics"]}
        metrics.transactional_ids.ask = lambda: {(): self._counts["transactional_ids"]}

    async def update(self) -> None:
        """Update the rows, if this process is scraped."""
        if not self._metrics.is_scraped:
            return
        servers = (await self._store.info("memory")).values()
        self._used = {(str(place),): int(info["used_memory"]) for place, info in servers}
        fields = await self._store.command("HLEN", self._keys.topics())
        self._counts = {
            "topics": max(0, int(fields) - 1),  # one field is the table's version
            "transactional_ids": await self._store.command("ZCARD", self._keys.transactions()),
        }
        self._most = {(str(place),): int(info.get("maxmemory", 0)) for place, info in servers}


"""Max rows of the metric; the largest are shown."""


class ConsumedGauges:
    """Rows of the metric as of the last update."""

    def __init__(self, store: AsyncStore, keys: Keys, topics: TopicTable, metrics: Metrics) -> None:
        self._store = store
        self._keys = keys
        self._topics = topics
        self._rows: dict[Labels, float] = {}
        metrics.held_records.ask = lambda: self._rows

    async def update(self) -> None:
        """Update the rows: one for each group and partition of topics with retention.consumed."""
        rows: dict[Labels, float] = {}
        for topic in await self._topics.all():
            if topic.policy.consumed_by:
                for number, group, records in await list_held(self._store, self._keys, topic):
                    rows[topic.name, str(number), group] = records
        self._rows = dict(sorted(rows.items(), key=lambda row: -row[1])[:ROWS])

    def clear(self) -> None:
        """Report no rows: another process does."""
        self._rows = {}


ROWS = 1000
"""Max topics of the metrics; those with the most waiting records are shown."""
AT_ONCE = 100


class ScheduleGauges:
    """Rows of the metrics as of the last update."""

    def __init__(self, store: AsyncStore, topics: TopicTable, metrics: Metrics) -> None:
        self._store = store
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
            calls = (topic.partition(number).schedule_list(most=0) for number in numbers)
            for reply in await asyncio.gather(*map(self._store.run, calls)):
                records, size = records + reply.records, size + reply.size
                overdue_ms = max(overdue_ms, reply.overdue_ms)
        return topic.name, records, size, overdue_ms / 1000
