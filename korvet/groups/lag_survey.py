"""The lag of all groups at once, for monitoring: those with the most lag, within bounds.

Rules
- Every group is read: which ones are shown depends on their lag and their ids only.
- Redis works for it a part of the time only: after each pipeline the survey sleeps for
  THROTTLE_FACTOR times the pipeline's duration.
- The end of a partition is read once for all groups. Only a group below the end of a log needs a
  call more, and none if an earlier count still holds.
- As everywhere, a partition that is assigned and has no commit counts from the log start.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from heapq import nsmallest
from time import monotonic
from typing import TypeVar

import msgspec

from korvet.base.bounded import chunks
from korvet.groups.counted_lags import CountedLags
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
from korvet.groups.share_offsets import (
    SharePartition,
    describe_partitions,
    find_topics,
    list_partitions,
)
from korvet.scripts.calls.partition import ListOffsetsReply
from korvet.scripts.keys import Keys
from korvet.store.async_store import AsyncStore
from korvet.topics.table import Topic, TopicTable

GROUPS_PER_PIPELINE = 50
CALLS_PER_PIPELINE = 100
THROTTLE_FACTOR = 4
"""Sleep after a pipeline, in durations of the pipeline."""

T = TypeVar("T")


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


class PartitionEnds:
    """The ends of partitions, each read once."""

    def __init__(self, store: AsyncStore, keys: Keys) -> None:
        self._store = store
        self._keys = keys
        self._found: dict[tuple[str, int], ListOffsetsReply] = {}

    def __getitem__(self, place: tuple[str, int]) -> ListOffsetsReply:
        return self._found[place]

    async def read(self, partitions: Iterable[tuple[Topic, int]]) -> None:
        """Read the ends of the partitions that are not known yet."""
        missing = {
            (topic.name, number): topic
            for topic, number in partitions
            if (topic.name, number) not in self._found
        }
        for some in chunks(list(missing.items()), CALLS_PER_PIPELINE):
            replies = await await_throttled(
                self._store.run_many(
                    self._keys.partition(topic.name, number, topic.id).list_offsets()
                    for (_, number), topic in some
                )
            )
            self._found.update(zip((place for place, _ in some), replies, strict=True))


class LagSurvey:
    """A pass over all groups."""

    def __init__(
        self,
        store: AsyncStore,
        keys: Keys,
        topics: TopicTable,
        ends: PartitionEnds | None = None,
        counted: CountedLags | None = None,
    ) -> None:
        self._store = store
        self._keys = keys
        self._topics = topics
        self._ends = ends or PartitionEnds(store, keys)
        self._lags = counted or CountedLags()
        self._now_ms = 0
        self._lags.begin()

    async def run(self, max_groups: int, proceed: Proceed | None = None) -> Survey | None:
        """Read all groups and return those with the most lag.

        `proceed` is called between pipelines. Returns None once it returns False.
        """
        began, total = monotonic(), 0
        self._now_ms = await redis_ms(self._store)
        kept: list[GroupLag] = []
        names = await GroupRegistry(self._store, self._keys).scan_all()
        for some in chunks(names, GROUPS_PER_PIPELINE):
            if proceed is not None and not await proceed():
                return None
            found = await self._read(some)
            total += len(found)
            kept = nsmallest(max_groups, [*kept, *found], key=_rank)
        return Survey(kept, total, monotonic() - began)

    async def _read(self, names: Sequence[str]) -> list[GroupLag]:
        """Return the groups of these names, with their lag."""
        groups = await await_throttled(read_groups(self._store, self._keys, self._topics, names))
        found = [group for group in groups if group.type != "share"]
        await self._ends.read(
            (topic, number) for group in found for topic, number, _ in group.commits
        )
        shared = [
            await self._shared(group.name, group.members)
            for group in groups
            if group.type == "share"
        ]
        return [await self._lag_of(group) for group in found] + shared

    async def _shared(self, name: str, members: int) -> GroupLag:
        """Return a share group's rows, of the partitions that it has read."""
        store, keys = self._store, self._keys
        flat = await store.command("HGETALL", keys.group(name).share_topics)
        places = list_partitions(await find_topics(self._topics, flat))
        found: list[SharePartition] = []
        for some in chunks(places, CALLS_PER_PIPELINE // 2):
            found += await await_throttled(describe_partitions(store, keys, name, some))
        found = [part for part in found if part.start >= 0 and part.lag >= 0]
        found.sort(key=lambda part: (part.topic.name, part.partition))
        rows = [
            LagRow(part.topic.name, part.partition, part.start, part.log_end, part.lag)
            for part in found
        ]
        return GroupLag(name, members, rows, sum(row.lag for row in rows), found)

    async def _lag_of(self, group: GroupPositions) -> GroupLag:
        """Return the group's rows, in order of topic and partition."""
        rows: list[LagRow] = []
        counted: list[Commit] = []
        for topic, number, commit in group.commits:
            end = self._ends[topic.name, number]
            if end.error:
                continue
            lag: tuple[int, int] | None = (0, -1)
            if commit.offset < end.next:
                lag = self._lags.find(topic, number, max(commit.offset, 0), end)
            if lag is None:
                counted.append((topic, number, commit))
            else:
                rows.append(self._row(topic, number, commit, end.next, *lag))
        for some in chunks(counted, CALLS_PER_PIPELINE):
            rows += await self._counted(some)
        rows.sort(key=lambda row: (row.topic, row.partition))
        return GroupLag(group.name, group.members, rows, sum(row.lag for row in rows))

    def _row(
        self, topic: Topic, number: int, commit: CommittedOffset, end: int, lag: int, oldest: int
    ) -> LagRow:
        age = age_ms(lag, oldest, self._now_ms)
        return LagRow(topic.name, number, commit.offset, end, lag, age)

    async def _counted(self, commits: Sequence[Commit]) -> list[LagRow]:
        """Return the rows of these commits, with records counted by Redis."""
        replies = await await_throttled(
            self._store.run_many(lag_call(self._keys, *commit) for commit in commits)
        )
        rows = []
        for (topic, number, commit), reply in zip(commits, replies, strict=True):
            if reply.error:
                continue
            end = self._ends[topic.name, number]
            if reply.next == end.next:
                found = (reply.records, reply.oldest)
                self._lags.keep(topic, number, max(commit.offset, 0), end, found)
            rows.append(self._row(topic, number, commit, reply.next, reply.records, reply.oldest))
        return rows


def _rank(group: GroupLag) -> tuple[int, str]:
    """Return the sort key of a group: most lag first, then by id."""
    return -group.lag, group.group


async def await_throttled(pipeline: Awaitable[T]) -> T:
    """Await the pipeline, then sleep for THROTTLE_FACTOR times as long."""
    began = monotonic()
    found = await pipeline
    await asyncio.sleep(THROTTLE_FACTOR * (monotonic() - began))
    return found
