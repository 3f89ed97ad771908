"""Metrics of Redis, of groups, of scheduled records, and of the records that groups hold.

Rules
- One broker process at a time updates them, by lease, so that sums are right; the others report
  none. Only a process that a scrape has asked recently takes the lease.
- Groups and rows of groups above the limits are left out, least lag first; gauges say how many.
- An update of the groups also records their lag for the console, once a minute.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from korvet.base.bounded import chunks
from korvet.base.metrics import Gauge, Labels
from korvet.broker.background.runner import Leases
from korvet.groups import lag_survey
from korvet.groups.consumed import list_held
from korvet.groups.lag_survey import INTERVAL_S, LagRow, LagSurvey, Survey
from korvet.groups.share_group import SharePartition
from korvet.topics.node import Node
from korvet.topics.table import Topic

LEASE = "group-gauges"
ROWS = 1000
"""Max rows of the metrics of held and of scheduled records; the largest are shown."""
AT_ONCE = 100


@dataclass(eq=False, repr=False)
class GroupGauges:
    """Rows of the group metrics as of the last update."""

    survey: LagSurvey
    leases: Leases

    def __post_init__(self) -> None:
        self._shown: Survey | None = None
        self._rows: list[tuple[str, LagRow]] = []
        self._hidden_rows = 0
        metrics = self.survey.node.metrics
        metrics.group_members.ask = self.members
        metrics.group_lag.ask = self.lag
        metrics.group_age.ask = self.age
        metrics.share_records.ask = lambda: self._shared(
            available=lambda part: part.available,
            acquired=lambda part: part.acquired,
            dead_letter=lambda part: part.dead_letters,
        )
        metrics.share_finished.ask_rows = lambda: self._shared(
            accepted=lambda part: part.acknowledged, archived=lambda part: part.archived
        )
        self._show(metrics.groups, lambda found: found.total_groups)
        self._show(metrics.groups_not_shown, lambda found: found.hidden_groups)
        self._show(metrics.group_rows_not_shown, lambda _: self._hidden_rows)
        self._show(metrics.group_update_seconds, lambda found: found.seconds)

    def _show(self, gauge: Gauge, number: Callable[[Survey], Any]) -> None:
        """Let the gauge show a number of the last update, and nothing without one."""
        gauge.ask = lambda: {} if self._shown is None else {(): number(self._shown)}

    def members(self) -> Mapping[Labels, float]:
        """Return the members of each group."""
        groups = self._shown.groups if self._shown is not None else ()
        return {(group.group,): group.members for group in groups}

    def lag(self) -> Mapping[Labels, float]:
        """Return the lag of each partition that a group has committed or is assigned."""
        return {(group, row.topic, str(row.partition)): row.lag for group, row in self._rows}

    def age(self) -> Mapping[Labels, float]:
        """Return the age of the oldest unread record of each, in seconds."""
        return {
            (group, row.topic, str(row.partition)): row.age_ms / 1000
            for group, row in self._rows
            if row.age_ms >= 0
        }

    def _shared(self, **numbers: Callable[[SharePartition], int]) -> Mapping[Labels, float]:
        """Return the numbers of share groups' partitions that have rows, by their names."""
        shown = {(group, row.topic, row.partition) for group, row in self._rows}
        return {
            (group.group, part.topic.name, str(part.partition), name): number(part)
            for group in (self._shown.groups if self._shown is not None else ())
            for part in group.shared
            if (group.group, part.topic.name, part.partition) in shown
            for name, number in numbers.items()
        }

    async def update(self) -> None:
        """Update the rows if this process is scraped and holds the lease, else drop them."""
        found = None
        if self.survey.node.metrics.is_scraped and await self._hold():
            is_last = self.survey.last is self._shown
            found = await self.survey.newest(0 if is_last else INTERVAL_S, self._hold)
        if found is not None:
            await lag_survey.record_if_due(self.survey, self._hold)
        max_rows = self.survey.node.settings().integer("monitoring.max.partitions")
        self._rows, self._hidden_rows = found.rows(max_rows) if found is not None else ([], 0)
        self._shown = found

    async def _hold(self) -> bool:
        return await self.leases.hold(LEASE, INTERVAL_S * 2)


@dataclass(eq=False, repr=False)
class RedisGauges:
    """Rows of the Redis metrics as of the last update."""

    node: Node

    def __post_init__(self) -> None:
        metrics = self.node.metrics
        self._counts = {"topics": 0, "transactional_ids": 0}
        self._used: dict[Labels, float] = {}
        self._max_memory: dict[Labels, float] = {}
        metrics.redis_used_memory.ask = lambda: self._used
        metrics.redis_max_memory.ask = lambda: self._max_memory
        metrics.topics.ask = lambda: {(): self._counts["topics"]}
        metrics.transactional_ids.ask = lambda: {(): self._counts["transactional_ids"]}

    async def update(self) -> None:
        """Update the rows, if this process is scraped."""
        if not self.node.metrics.is_scraped:
            return
        servers = (await self.node.store.info("memory")).values()
        self._used = {(str(address),): int(info["used_memory"]) for address, info in servers}
        fields = await self.node.store.command("HLEN", self.node.keys.topics())
        self._counts = {
            "topics": max(0, int(fields) - 1),  # one field is the table's version
            "transactional_ids": await self.node.store.command(
                "ZCARD", self.node.keys.transactions()
            ),
        }
        self._max_memory = {
            (str(address),): int(info.get("maxmemory", 0)) for address, info in servers
        }


@dataclass(eq=False, repr=False)
class ConsumedGauges:
    """Rows of the metric as of the last update."""

    node: Node

    def __post_init__(self) -> None:
        self._rows: dict[Labels, float] = {}
        self.node.metrics.held_records.ask = lambda: self._rows

    async def update(self) -> None:
        """Update the rows: one for each group and partition of topics with retention.consumed."""
        rows: dict[Labels, float] = {}
        for topic in await self.node.topics.all():
            if topic.policy.consumed_by:
                for number, group, records in await list_held(
                    self.node.store, self.node.keys, topic
                ):
                    rows[topic.name, str(number), group] = records
        self._rows = dict(sorted(rows.items(), key=lambda row: -row[1])[:ROWS])

    def clear(self) -> None:
        """Report no rows: another process does."""
        self._rows = {}


@dataclass(eq=False, repr=False)
class ScheduleGauges:
    """Rows of the metrics as of the last update."""

    node: Node

    def __post_init__(self) -> None:
        metrics = self.node.metrics
        self._rows: list[tuple[str, int, int, float]] = []
        metrics.scheduled_records.ask = lambda: {(row[0],): row[1] for row in self._rows}
        metrics.scheduled_bytes.ask = lambda: {(row[0],): row[2] for row in self._rows}
        metrics.scheduled_overdue_seconds.ask = lambda: {(row[0],): row[3] for row in self._rows}

    async def update(self) -> None:
        """Update the rows: one for each topic with delivery.schedule.enable."""
        topics = await self.node.topics.all()
        rows = [await self._row(topic) for topic in topics if topic.policy.schedules]
        self._rows = sorted(rows, key=lambda row: -row[1])[:ROWS]

    def clear(self) -> None:
        """Report no rows: another process does."""
        self._rows = []

    async def _row(self, topic: Topic) -> tuple[str, int, int, float]:
        """Return the topic's name, waiting records and bytes, and seconds overdue."""
        records, size, overdue_ms = 0, 0, 0
        for numbers in chunks(range(topic.partitions), AT_ONCE):
            calls = (topic.partition(number).schedule_list(most=0) for number in numbers)
            for reply in await asyncio.gather(*map(self.node.store.run, calls)):
                records, size = records + reply.records, size + reply.size
                overdue_ms = max(overdue_ms, reply.overdue_ms)
        return topic.name, records, size, overdue_ms / 1000
