"""The budget `local.memory.bytes`: read what Redis uses, slow producers, refuse when it is full.

Rules
- Every broker reads used_memory while a budget is set. The less room is left, the sooner it reads
  again, so that producers at full speed do not pass the budget between two reads.
- Above COPY_MARK the evictor makes room. Above SLOW_MARK producers of topics above their share of
  the memory are throttled.
- At the budget batches for topics above their share that cannot be tiered are refused; above
  REFUSE_MARK also those for tiered topics, as the remote store does not take their copies then.
- A refusal is answered at once, with a retriable error. It ends with the next read that finds room.

Rules of shares
- A topic that holds less than its share of a server's memory neither waits nor is refused: the
  records of one topic stop no other topic's producers.
- The share is the largest size at which all topics together fit, if each holds at most that much.
  They fit in a part of the budget, without what other keys of the server take. A tenth of the
  budget is always theirs.
- Sizes are those of the logs' counters. They are read while producers wait, the more seldom the
  more partitions there are. Before the first read, every topic counts as one above its share.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from time import monotonic

import msgspec

from korvet.base import logfmt
from korvet.base.bounded import chunks
from korvet.config.values import Settings
from korvet.store.async_store import AsyncStore
from korvet.store.errors import StoreError
from korvet.topics.table import Topic, TopicTable

SLOW_MARK = 0.85
"""Part of the budget above which producers are throttled."""
REFUSE_MARK = 1.1
"""Part of the budget above which batches for tiered topics are refused."""
LEAST_ROOM = 0.1
"""Part of the budget that topics have, whatever other keys take."""
INTERVAL_S, PARTITION_S = 0.1, 0.002
"""Least seconds between two reads of all sizes, and more of them for each partition."""
AT_ONCE = 500
NAMED = 10
"""Topics that a log line names."""

logger = logfmt.get("remote_log.memory")


def share_of(sizes: Iterable[int], room: float) -> float:
    """Return the largest size that each of the topics may have in that room; inf: any."""
    ordered = sorted(sizes)
    for at, size in enumerate(ordered):
        share = room / (len(ordered) - at)
        if size > share:
            return share
        room -= size
    return float("inf")


def above_share(sizes: Mapping[str, int], used: int, budget: int, mark: float) -> set[str]:
    """Return the topics above their share of a server that uses more than `mark` of its budget."""
    if used <= mark * budget:
        return set()
    others = max(0, used - sum(sizes.values()))
    share = share_of(sizes.values(), max(mark * budget - others, LEAST_ROOM * budget))
    return {topic for topic, size in sizes.items() if size >= share}


def leaves_redis(topic: Topic) -> bool:
    """Return whether the topic's records are copied to segments and then leave Redis."""
    return topic.policy.remote_storage and not topic.policy.remote_copy_disable


class TopicShares(msgspec.Struct):
    """The topics whose producers wait, and those whose batches are refused; None: all."""

    slowed: frozenset[str] | None = None
    refused: frozenset[str] | None = None


class SharesReader:
    """Reads the sizes of topics and keeps the decision; topics are named by id."""

    def __init__(self, store: AsyncStore, topics: TopicTable) -> None:
        self.shares = TopicShares()
        self.refused_names: list[str] = []
        """Names of the topics that are refused now, the largest first."""
        self._store = store
        self._topics = topics
        self._due_at = 0.0

    async def read(self, used: Mapping[str, int], budget: int) -> None:
        """Decide anew from the sizes of all topics, if that is due."""
        now = monotonic()
        if now < self._due_at:
            return
        topics = await self._topics.all()
        self._due_at = now + INTERVAL_S + PARTITION_S * sum(each.partitions for each in topics)
        sizes = await self._sizes(topics)
        slowed: set[str] = set()
        refused: set[str] = set()
        tiered = {topic.id for topic in topics if leaves_redis(topic)}
        for run, size in used.items():
            on_server = sizes[run]
            slowed |= above_share(on_server, size, budget, SLOW_MARK)
            refused |= above_share(on_server, size, budget, REFUSE_MARK)
            refused |= above_share(on_server, size, budget, 1.0) - tiered
        self.shares = TopicShares(frozenset(slowed), frozenset(refused))
        total = {
            topic.id: sum(each.get(topic.id, 0) for each in sizes.values()) for topic in topics
        }
        names = sorted((-total[topic.id], topic.name) for topic in topics if topic.id in refused)
        self._note([name for _, name in names], max(used.values(), default=0), budget)

    def forget(self) -> None:
        """Decide nothing: Redis has room again."""
        self.shares = TopicShares()
        self._due_at = 0.0
        self._note([], 0, 0)

    def _note(self, names: list[str], used: int, budget: int) -> None:
        """Keep whose batches are refused; log it if that has changed."""
        before, self.refused_names = self.refused_names, names
        if names and set(names) - set(before):
            logger.warning_again(
                "batches refused: Redis is above local.memory.bytes",
                topics=names[:NAMED],
                count=len(names),
                used_bytes=used,
                budget_bytes=budget,
            )
        elif before and not names:
            logger.info("batches accepted again: Redis has room")

    async def _sizes(self, topics: Iterable[Topic]) -> defaultdict[str, dict[str, int]]:
        """Return the bytes of each topic's records in Redis, by server."""
        sizes: defaultdict[str, dict[str, int]] = defaultdict(dict)
        places = [
            (topic.id, topic.partition(number).log)
            for topic in topics
            for number in range(topic.partitions)
        ]
        for some in chunks(places, AT_ONCE):
            rows = await asyncio.gather(
                *(self._store.command("HMGET", key, "bytes", "start_bytes") for _, key in some)
            )
            for (topic_id, key), row in zip(some, rows, strict=True):
                server = sizes[self._store.run_of(key)]
                size = int(row[0] or 0) - int(row[1] or 0)
                server[topic_id] = server.get(topic_id, 0) + size
        return sizes


COPY_MARK = 0.8
"""Part of the budget above which records are copied at once and leave Redis."""
TRIM_MARK = 0.75
"""Part of the budget down to which copied records leave Redis."""
MAX_THROTTLE_MS = 2000
MIN_INTERVAL_S, MAX_INTERVAL_S = 0.02, 0.5
PEAK_BYTES = 400e6
"""Bytes a second by which used memory may grow: gives the time until the next read."""


class MemoryBudget:
    """The used memory of the Redis servers, in parts of the budget."""

    def __init__(
        self, store: AsyncStore, settings: Callable[[], Settings], shares: SharesReader
    ) -> None:
        self._store = store
        self._shares = shares
        self._settings = settings
        self._levels: dict[str, float] = {}
        self._pressed = asyncio.Event()
        self.level = 0.0
        """Level of the fullest server, 0 without a budget."""

    @property
    def bytes(self) -> int:
        """The budget of each server in bytes, -1 if there is none."""
        return self._settings().integer("local.memory.bytes")

    @property
    def slows(self) -> bool:
        """Return whether producers of some topics are throttled."""
        return self.level > SLOW_MARK

    def slows_any(self, topic_ids: Iterable[str]) -> bool:
        """Return whether producers of one of the topics are throttled."""
        slowed = self._shares.shares.slowed
        return self.slows and (slowed is None or not slowed.isdisjoint(topic_ids))

    @property
    def is_full(self) -> bool:
        return self.level >= 1

    def refusal(self, topic: Topic) -> str | None:
        """Return why batches for the topic are refused; None if they are not."""
        is_tiered, refused = leaves_redis(topic), self._shares.shares.refused
        is_above = self.level > (REFUSE_MARK if is_tiered else 1)
        if not is_above or (refused is not None and topic.id not in refused):
            return None
        if is_tiered:
            return "Redis is above local.memory.bytes: the remote store does not take copies."
        return "Redis has reached local.memory.bytes and the topic is not tiered."

    @property
    def refused_names(self) -> list[str]:
        """Return the names of the topics whose batches are refused, the largest topics first."""
        return self._shares.refused_names

    def level_of(self, run: str) -> float:
        """Return the level of the server with that run id, 0 if it was not read."""
        return self._levels.get(run, 0.0)

    def throttle_ms(self) -> int:
        """Return how long a producer waits until its next request: 1 s at the budget."""
        excess = max(0.0, self.level - SLOW_MARK) / (1 - SLOW_MARK)
        return min(round(1000 * excess**2), MAX_THROTTLE_MS)

    async def read(self) -> None:
        """Read the used memory of all servers."""
        budget = self.bytes
        used = await self._store.used_memory() if budget >= 0 else {}
        self._levels = {run: size / max(budget, 1) for run, size in used.items()}
        self.level = max(self._levels.values(), default=0.0)
        if self.level > COPY_MARK:
            self._pressed.set()
        else:
            self._pressed.clear()
        if self.slows:
            await self._shares.read(used, budget)
        else:
            self._shares.forget()

    async def wait_for_pressure(self) -> None:
        """Wait until a server is above COPY_MARK."""
        await self._pressed.wait()

    async def run(self) -> None:
        """Read again and again until cancelled; without Redis the last levels stay."""
        while True:
            try:
                await self.read()
            except StoreError:
                await asyncio.sleep(MAX_INTERVAL_S)
            await asyncio.sleep(self._interval_s())

    def _interval_s(self) -> float:
        budget = self.bytes
        if budget < 0:
            return MAX_INTERVAL_S
        room = max(0.0, SLOW_MARK - self.level) * budget
        return min(max(room / PEAK_BYTES, MIN_INTERVAL_S), MAX_INTERVAL_S)
