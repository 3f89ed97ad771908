"""Record the lag of groups once a minute while this broker's console runs.

A broker that Prometheus scrapes records it too: the first one of a minute does. The survey runs in
the console's thread, and leaves Redis four fifths of its time.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from korvet.base import logfmt
from korvet.broker.background.leases import Leases
from korvet.config.values import Settings
from korvet.groups import lag_history
from korvet.groups.counted_lags import CountedLags
from korvet.groups.lag_survey import LagSurvey
from korvet.scripts.keys import Keys
from korvet.store.async_store import AsyncStore
from korvet.store.errors import StoreError
from korvet.topics.table import TopicTable

CHECK_S = 15.0
"""Seconds between two checks whether the minute has a sample."""
LEASE = "lag-history"
LEASE_S = 60.0

log = logfmt.get("console")


@dataclass(eq=False, repr=False)
class LagRecorder:
    """Records the lag of all groups while this process holds the lease."""

    store: AsyncStore
    keys: Keys
    topics: TopicTable
    settings: Callable[[], Settings]
    leases: Leases

    def __post_init__(self) -> None:
        self._counted = CountedLags()

    async def run(self) -> None:
        """Record until cancelled."""
        while True:
            try:
                await self.record_if_due()
            except StoreError as error:
                log.warning("lag of groups not recorded, retrying", error=error)
            await asyncio.sleep(CHECK_S)

    async def record_if_due(self) -> None:
        """Record the lag of this minute, unless another broker does. Raises StoreError."""
        if not await lag_history.is_due(self.store, self.keys) or not await self._hold():
            return
        survey = LagSurvey(self.store, self.keys, self.topics, counted=self._counted)
        most = self.settings().integer("monitoring.max.groups")
        found = await survey.run(most, self._hold)
        if found is not None:
            await lag_history.record(self.store, self.keys, found)

    async def _hold(self) -> bool:
        return await self.leases.hold(LEASE, LEASE_S)
