"""The lag of all groups at once, for monitoring: those with the most lag, within bounds.

Rules
- Every group is read: which ones are shown depends on their lag and their ids only.
- Redis works for it a part of the time only: after each pipeline the survey sleeps for
  THROTTLE_FACTOR times the pipeline's duration.
- The end of a partition is read once for all groups. A group at the end of a log needs no call
  more. Others need none while a count of this survey or the one before is valid: until the log's
  ends or its number of records change. Groups with one committed offset share a count.
- The readers in a process share a survey for INTERVAL_S, unless their numbers must be newer.
- As everywhere, a partition that is assigned and has no commit counts from the log start.

Rules of the samples, which Redis has of the lag: one a minute for an hour, one a quarter for a day
- The first broker that surveys the groups in a minute records it. Each broker shows all samples,
  also after a restart.
- A sample has the MAX_ROWS partitions with the most lag. Those without a row had no lag, or at most
  the sample's `cut`.
- Groups are spread over SHARDS keys, so that a page of one group reads a part of the samples.
"""

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from time import monotonic
from typing import TypeVar

import msgspec

from korvet.base.bounded import chunks
from korvet.groups.description import SHARE, TopicPartition
from korvet.groups.lag import (
    Commit,
    GroupPositions,
    age_ms,
    lag_call,
    read_groups,
    redis_ms,
)
from korvet.groups.offset_commit import CommittedOffset
from korvet.groups.registry import GroupRegistry
from korvet.groups.share_group import (
    SharePartition,
    describe_partitions,
    share_places,
)
from korvet.scripts.calls.partition import ListOffsetsReply
from korvet.scripts.keys import Keys
from korvet.store.async_store import AsyncStore
from korvet.topics.node import Node
from korvet.topics.table import Topic

INTERVAL_S = 15.0
"""Seconds until the next survey."""
GROUPS_PER_PIPELINE = 50
CALLS_PER_PIPELINE = 100
THROTTLE_FACTOR = 4
"""Sleep after a pipeline, in durations of the pipeline."""

T = TypeVar("T")
Ends = dict[TopicPartition, ListOffsetsReply]
"""The ends of partitions."""
LogOffset = tuple[str, int, int]
"""Id of the topic, partition and offset."""
Counted = tuple[tuple[int, int, int], int, int]
"""Bounds of a log, records from an offset to its end, and the first one's time in ms, or -1."""


class LagRow(msgspec.Struct, frozen=True):
    """The committed offset of a group in a partition, the log's end, and the lag in records."""

    topic: str
    partition: int
    committed: int
    """-1 for none."""
    end: int
    lag: int
    age_ms: int = 0
    """Age of the oldest unread record; -1 if unknown."""


class GroupLag(msgspec.Struct, frozen=True):
    """The members of a group, the rows of its partitions, and their total lag."""

    group: str
    members: int
    rows: list[LagRow]
    lag: int
    shared: list[SharePartition] = []
    """The state of a share group in the partitions of `rows`, in their order."""


class Survey(msgspec.Struct, frozen=True):
    """The groups with the most lag, most lag first, and the number of all groups."""

    groups: list[GroupLag] = []
    total_groups: int = 0
    seconds: float = 0.0
    ends: Ends = {}
    """The ends of the partitions that groups have committed or are assigned."""

    @property
    def hidden_groups(self) -> int:
        """Groups that were left out."""
        return self.total_groups - len(self.groups)

    def rows(self, max_rows: int) -> tuple[list[tuple[str, LagRow]], int]:
        """Return the rows with the most lag, with their groups, and how many were left out."""
        found = [(group.group, row) for group in self.groups for row in group.rows]
        if len(found) <= max_rows:
            return found, 0
        kept = nsmallest(max_rows, enumerate(found), key=lambda each: (-each[1][1].lag, each[0]))
        return [found[at] for at, _ in sorted(kept)], len(found) - max_rows


Proceed = Callable[[], Awaitable[bool]]


@dataclass(eq=False, repr=False)
class LagSurvey:
    """The passes of one process over all groups, and what the last one found."""

    node: Node

    def __post_init__(self) -> None:
        self.last = Survey()
        self._began = -INTERVAL_S
        self._turn = asyncio.Lock()
        self._ends: Ends = {}
        self._counted: dict[LogOffset, Counted] = {}
        self._counted_before: dict[LogOffset, Counted] = {}
        self._now_ms = 0

    async def newest(self, max_age_s: float, proceed: Proceed | None = None) -> Survey | None:
        """Return the last survey if it began in the last `max_age_s`, else a new one.

        `proceed` is called between pipelines. Returns None once it returns False.
        """
        async with self._turn:
            began = monotonic()
            if began - self._began >= max_age_s:
                max_groups = self.node.settings().integer("monitoring.max.groups")
                found = await self.run(max_groups, proceed)
                if found is None:
                    return None
                self.last, self._began = found, began
            return self.last

    async def read_ends(self, ends: Ends, partitions: Iterable[tuple[Topic, int]]) -> None:
        """Add the ends of the partitions that `ends` does not have."""
        missing = {
            (topic.name, number): topic.partition(number)
            for topic, number in partitions
            if (topic.name, number) not in ends
        }
        for some in chunks(list(missing.items()), CALLS_PER_PIPELINE):
            calls = (partition.list_offsets() for _, partition in some)
            replies = await await_throttled(self.node.store.run_many(calls))
            ends.update(zip((key for key, _ in some), replies, strict=True))

    async def run(self, max_groups: int, proceed: Proceed | None = None) -> Survey | None:
        """Read all groups and return those with the most lag."""
        began, total = monotonic(), 0
        self._ends = {}
        self._counted_before, self._counted = self._counted, {}
        self._now_ms = await redis_ms(self.node.store)
        kept: list[GroupLag] = []
        names = await GroupRegistry(self.node.store, self.node.keys).scan_all()
        for some in chunks(names, GROUPS_PER_PIPELINE):
            if proceed is not None and not await proceed():
                return None
            found = await self._read(some)
            total += len(found)
            kept = nsmallest(max_groups, [*kept, *found], key=lambda each: (-each.lag, each.group))
        return Survey(kept, total, monotonic() - began, self._ends)

    async def _read(self, names: Sequence[str]) -> list[GroupLag]:
        """Return the groups of these names, with their lag."""
        groups = await await_throttled(read_groups(self.node, names))
        found = [group for group in groups if group.type != SHARE]
        commits = (commit for group in found for commit in group.commits)
        await self.read_ends(self._ends, ((topic, number) for topic, number, _ in commits))
        shared = [await self._shared(group) for group in groups if group.type == SHARE]
        return [await self._lag_of(group) for group in found] + shared

    async def _shared(self, group: GroupPositions) -> GroupLag:
        """Return a share group's rows, of the partitions that it has read."""
        places = await share_places(self.node, group.name)
        found: list[SharePartition] = []
        for some in chunks(places, CALLS_PER_PIPELINE // 2):
            found += await await_throttled(describe_partitions(self.node.store, group.name, some))
        found = [part for part in found if part.start >= 0 and part.lag >= 0]
        found.sort(key=lambda part: (part.topic.name, part.partition))
        rows = [
            LagRow(part.topic.name, part.partition, part.start, part.log_end, part.lag)
            for part in found
        ]
        return GroupLag(group.name, group.members, rows, sum(row.lag for row in rows), found)

    async def _lag_of(self, group: GroupPositions) -> GroupLag:
        """Return the group's rows, in order of topic and partition."""
        rows: list[LagRow] = []
        uncounted: list[Commit] = []
        for topic, number, commit in group.commits:
            end = self._ends[topic.name, number]
            if end.error:
                continue
            if commit.offset >= end.next:
                rows.append(self._row(topic, number, commit, end.next, 0, -1))
                continue
            position = (topic.id, number, max(commit.offset, 0))
            known = self._counted.get(position) or self._counted_before.get(position)
            if known is None or known[0] != _bounds(end):
                uncounted.append((topic, number, commit))
                continue
            self._counted[position] = known
            rows.append(self._row(topic, number, commit, end.next, known[1], known[2]))
        for some in chunks(uncounted, CALLS_PER_PIPELINE):
            rows += await self._count(some)
        rows.sort(key=lambda row: (row.topic, row.partition))
        return GroupLag(group.name, group.members, rows, sum(row.lag for row in rows))

    def _row(
        self, topic: Topic, number: int, commit: CommittedOffset, end: int, lag: int, oldest: int
    ) -> LagRow:
        age = age_ms(lag, oldest, self._now_ms)
        return LagRow(topic.name, number, commit.offset, end, lag, age)

    async def _count(self, commits: Sequence[Commit]) -> list[LagRow]:
        """Return the rows of these commits, with records counted by Redis."""
        replies = await await_throttled(
            self.node.store.run_many(lag_call(*each) for each in commits)
        )
        rows = []
        for (topic, number, commit), reply in zip(commits, replies, strict=True):
            if reply.error:
                continue
            end = self._ends[topic.name, number]
            if reply.next == end.next:
                position = (topic.id, number, max(commit.offset, 0))
                self._counted[position] = (_bounds(end), reply.records, reply.oldest)
            rows.append(self._row(topic, number, commit, reply.next, reply.records, reply.oldest))
        return rows


def _bounds(end: ListOffsetsReply) -> tuple[int, int, int]:
    """Return what changes with each change of a log, except for its configs."""
    return end.first, end.next, end.records


async def await_throttled(pipeline: Awaitable[T]) -> T:
    """Await the pipeline, then sleep for THROTTLE_FACTOR times as long."""
    began = monotonic()
    found = await pipeline
    await asyncio.sleep(THROTTLE_FACTOR * (monotonic() - began))
    return found


SHARDS = 16
MAX_ROWS = 2_000
"""Partitions with lag in a sample, over all groups."""
MINUTE_MS = 60_000
EARLIER = (5, 6, 4, 7, 3, 8)
"""Ages of the sample that a lag is compared with, in minutes: the first one that there is."""
MIN_GROWTH = 10
"""Records by which a lag may grow and count as stable."""

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
            await record_sample(store, keys, found)


async def is_due(store: AsyncStore, keys: Keys) -> bool:
    """Return whether this minute has no sample yet, by the clock of Redis."""
    field = str(await redis_ms(store) // MINUTE_MS)
    return not await store.command("HEXISTS", keys.lag_history(0), field)


async def record_sample(store: AsyncStore, keys: Keys, survey: Survey) -> None:
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
        keys.group_record_lag(
            lag_history=keys.lag_history(number), sample=encode_sample(cut, groups)
        )
        for number, groups in enumerate(shards)
    )


async def read_samples(store: AsyncStore, keys: Keys, group: str) -> list[Sample]:
    """Return the samples of a group, in order of time."""
    flat = await store.command("HGETALL", keys.lag_history(shard_of(group)))
    found = []
    for minute, raw in zip(flat[::2], flat[1::2], strict=True):
        found.append(_sample_of(group, int(minute) * MINUTE_MS, _decode(raw)))
    return sorted(found, key=lambda each: each.at_ms)


def _decode(raw: bytes) -> _Stored:
    """Return the sample of a shard."""
    return msgspec.msgpack.decode(zlib.decompress(raw), type=_Stored)


def _sample_of(group: str, at_ms: int, stored: _Stored) -> Sample:
    """Return the sample of a group in that of its shard."""
    lags = {
        (topic, number): lag
        for topic, pairs in stored.groups.get(group, {}).items()
        for number, lag in zip(pairs[::2], pairs[1::2], strict=True)
    }
    return Sample(at_ms, stored.cut, lags)


async def read_earlier(store: AsyncStore, keys: Keys, groups: Iterable[str]) -> dict[str, Sample]:
    """Return the recorded lag of groups about five minutes ago, of those that have a sample."""
    now = await redis_ms(store) // MINUTE_MS
    minutes = [now - ago for ago in EARLIER]
    shards: dict[int, _Stored | None] = {}
    found = {}
    for group in groups:
        shard = shard_of(group)
        if shard not in shards:
            rows = await store.command("HMGET", keys.lag_history(shard), *minutes)
            raw = next(filter(None, rows), None)
            shards[shard] = None if raw is None else _decode(raw)
        if (stored := shards[shard]) is not None:
            found[group] = _sample_of(group, 0, stored)
    return found


def is_growing(lag: int, earlier: Sample | None, topic: str = "", partition: int = -1) -> bool:
    """Return whether a lag grew by a tenth, and by more than a few records; False if unknown.

    It is that of the group, of a topic or of a partition.
    """
    if earlier is None:
        return False
    before = earlier.cut + sum(
        records
        for (name, number), records in earlier.lags.items()
        if topic in ("", name) and partition in (-1, number)
    )
    return lag - before > max(MIN_GROWTH, before // 10)


def shard_of(group: str) -> int:
    """Return the number of the key that has the samples of a group."""
    return zlib.crc32(group.encode("utf-8", "surrogateescape")) % SHARDS


def encode_sample(cut: int, groups: dict[str, Topics]) -> bytes:
    """Return a sample of a shard as stored."""
    return zlib.compress(msgspec.msgpack.encode(_Stored(cut, groups)))
