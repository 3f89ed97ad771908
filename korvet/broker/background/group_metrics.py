"""Consumer group metrics for /metrics: members, and lag in records, of a limited number of groups.

Rules
- One broker process at a time updates them, by lease, so that sums are right; the others report
  none. Only a process that a scrape has asked recently takes the lease.
- Groups and rows above the limits are left out, least lag first; gauges say how many.
- An update also records the lag for the console, once a minute.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from korvet.base.metrics import Gauge, Labels, Metrics
from korvet.broker.background.leases import Leases
from korvet.config.values import Settings
from korvet.groups import lag_history
from korvet.groups.counted_lags import CountedLags
from korvet.groups.lag_survey import LagRow, LagSurvey, Survey
from korvet.groups.share_offsets import SharePartition
from korvet.scripts.keys import Keys
from korvet.store.async_store import AsyncStore
from korvet.topics.table import TopicTable

UPDATE_S = 15.0
"""Seconds between two updates."""
LEASE = "group-gauges"


@dataclass(eq=False, repr=False)
class GroupGauges:
    """Rows of the group metrics as of the last update."""

    store: AsyncStore
    keys: Keys
    topics: TopicTable
    settings: Callable[[], Settings]
    metrics: Metrics
    leases: Leases

    def __post_init__(self) -> None:
        self._counted = CountedLags()
        self._found: Survey | None = None
        self._rows: list[tuple[str, LagRow]] = []
        self._hidden_rows = 0
        self.metrics.group_members.ask = self.members
        self.metrics.group_lag.ask = self.lag
        self.metrics.group_age.ask = self.age
        self.metrics.share_records.ask = lambda: self._shared(
            available=lambda part: part.available,
            acquired=lambda part: part.acquired,
            dead_letter=lambda part: part.dead_letters,
        )
        self.metrics.share_finished.ask_rows = lambda: self._shared(
            accepted=lambda part: part.acknowledged, archived=lambda part: part.archived
        )
        self._show(self.metrics.groups, lambda found: found.total_groups)
        self._show(self.metrics.groups_not_shown, lambda found: found.hidden_groups)
        self._show(self.metrics.group_rows_not_shown, lambda _: self._hidden_rows)
        self._show(self.metrics.group_update_seconds, lambda found: found.seconds)

    def _show(self, gauge: Gauge, number: Callable[[Survey], Any]) -> None:
        """Let the gauge show a number of the last update, and nothing without one."""
        gauge.ask = lambda: {} if self._found is None else {(): number(self._found)}

    def members(self) -> Mapping[Labels, float]:
        """Return the members of each group."""
        groups = self._found.groups if self._found is not None else ()
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
            for group in (self._found.groups if self._found is not None else ())
            for part in group.shared
            if (group.group, part.topic.name, part.partition) in shown
            for name, number in numbers.items()
        }

    async def update(self) -> None:
        """Update the rows if this process is scraped and holds the lease, else drop them."""
        store, keys, settings = self.store, self.keys, self.settings()
        if not self.metrics.is_scraped or not await self._hold():
            found = None
        else:
            survey = LagSurvey(store, keys, self.topics, counted=self._counted)
            found = await survey.run(settings.integer("monitoring.max.groups"), self._hold)
            if found is not None and await lag_history.is_due(store, keys):
                await lag_history.record(store, keys, found)
        most = settings.integer("monitoring.max.partitions")
        self._rows, self._hidden_rows = found.rows(most) if found is not None else ([], 0)
        self._found = found

    async def _hold(self) -> bool:
        return await self.leases.hold(LEASE, UPDATE_S * 2)
