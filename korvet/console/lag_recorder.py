"""Record the lag of groups once a minute while this broker's console runs.

A broker that Prometheus scrapes records it too: the first one of a minute does. The survey runs in
the console's thread, and leaves Redis four fifths of its time.
"""

import asyncio

from korvet import logfmt
from korvet.broker.leases import Leases
from korvet.context import Services
from korvet.groups import lag_history
from korvet.groups.counted_lags import CountedLags
from korvet.groups.lag_survey import LagSurvey
from korvet.store.errors import StoreError

LOOK_S = 15.0
"""Seconds between two looks whether a minute has no sample."""
LEASE = "lag-history"
LEASE_S = 60.0

log = logfmt.get("console")


async def run(services: Services) -> None:
    """Record until cancelled."""
    leases, counted = Leases(services), CountedLags()
    while True:
        try:
            await record_if_due(services, leases, counted)
        except StoreError as error:
            log.warning("lag of groups not recorded, retrying", error=error)
        await asyncio.sleep(LOOK_S)


async def record_if_due(services: Services, leases: Leases, counted: CountedLags) -> None:
    """Record the lag of this minute, unless another broker does. Raises StoreError."""
    store, keys = services.store, services.keys

    async def hold() -> bool:
        return await leases.hold(LEASE, LEASE_S)

    if not await lag_history.is_due(store, keys) or not await hold():
        return
    most = services.settings.integer("monitoring.max.groups")
    survey = LagSurvey(store, keys, services.topics, counted=counted)
    found = await survey.run(most, hold)
    if found is not None:
        await lag_history.record(store, keys, found)
