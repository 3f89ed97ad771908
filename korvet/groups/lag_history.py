"""The lag of groups over time, in Redis: a sample a minute for an hour, one a quarter for a day.

Rules
- The first broker that surveys the groups in a minute records it. Each broker shows all samples,
  also after a restart.
- A sample has the MAX_ROWS partitions with the most lag. Those without a row had no lag, or at most
  the sample's `cut`.
- Groups are spread over SHARDS keys, so that a page of one group reads a part of the samples.
"""

import zlib
from collections.abc import Mapping

import msgspec

from korvet.groups.lag_survey import INTERVAL_S, LagSurvey, Proceed, Survey
from korvet.scripts.keys import Keys
from korvet.store.async_store import AsyncStore

SHARDS = 16
MAX_ROWS = 2_000
"""Partitions with lag in a sample, over all groups."""
MINUTE_MS = 60_000

Topics = dict[str, list[int]]
"""Partition and lag in turn, by topic."""


class Sample(msgspec.Struct, frozen=True):
    """The lag of one group at a time: `lags` counts records by topic and partition."""

    at_ms: int
    cut: int
    """Partitions with at most this lag may have no row; 0 if each has one."""
    lags: Mapping[tuple[str, int], int]


class _Stored(msgspec.Struct, frozen=True, array_like=True):
    """A sample of a shard, as stored."""

    cut: int
    groups: dict[str, Topics]


async def record_if_due(survey: LagSurvey, proceed: Proceed) -> None:
    """Record the lag of this minute, unless another process does. Raises StoreError."""
    store, keys = survey.node.store, survey.node.keys
    if await is_due(store, keys) and await proceed():
        found = await survey.newest(INTERVAL_S, proceed)
        if found is not None:
            await record(store, keys, found)


async def is_due(store: AsyncStore, keys: Keys) -> bool:
    """Return whether this minute has no sample yet, by the clock of Redis."""
    seconds, _ = await store.command("TIME")
    field = str(int(seconds) * 1000 // MINUTE_MS)
    return not await store.command("HEXISTS", keys.lag_history(0), field)


async def record(store: AsyncStore, keys: Keys, survey: Survey) -> None:
    """Record what a survey found, unless this minute has a sample."""
    rows, hidden = survey.rows(MAX_ROWS)
    lagging = [(group, row) for group, row in rows if row.lag > 0]
    is_cut = hidden and len(lagging) == len(rows)
    cut = min(row.lag for _, row in lagging) if is_cut else 0
    shards: list[dict[str, Topics]] = [{} for _ in range(SHARDS)]
    for group, row in lagging:
        topics = shards[shard_of(group)].setdefault(group, {})
        topics.setdefault(row.topic, []).extend((row.partition, row.lag))
    await store.run_many(
        keys.group_record_lag(lag_history=keys.lag_history(number), sample=encode(cut, groups))
        for number, groups in enumerate(shards)
    )


async def read(store: AsyncStore, keys: Keys, group: str) -> list[Sample]:
    """Return the samples of a group, in order of time."""
    flat = await store.command("HGETALL", keys.lag_history(shard_of(group)))
    found = []
    for minute, raw in zip(flat[::2], flat[1::2], strict=True):
        stored = msgspec.msgpack.decode(zlib.decompress(raw), type=_Stored)
        topics = stored.groups.get(group, {})
        lags = {
            (topic, number): lag
            for topic, pairs in topics.items()
            for number, lag in zip(pairs[::2], pairs[1::2], strict=True)
        }
        found.append(Sample(int(minute) * MINUTE_MS, stored.cut, lags))
    return sorted(found, key=lambda each: each.at_ms)


def shard_of(group: str) -> int:
    """Return the number of the key that has the samples of a group."""
    return zlib.crc32(group.encode("utf-8", "surrogateescape")) % SHARDS


def encode(cut: int, groups: dict[str, Topics]) -> bytes:
    """Return a sample of a shard as stored."""
    return zlib.compress(msgspec.msgpack.encode(_Stored(cut, groups)))
