"""Decide whose producers wait, and whose batches are refused, while Redis is above its budget.

Rules
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
from collections.abc import Iterable, Mapping
from time import monotonic

import msgspec

from korvet.base import logfmt
from korvet.store.async_store import AsyncStore
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
        for at in range(0, len(places), AT_ONCE):
            some = places[at : at + AT_ONCE]
            rows = await asyncio.gather(
                *(self._store.command("HMGET", key, "bytes", "start_bytes") for _, key in some)
            )
            for (topic_id, key), row in zip(some, rows, strict=True):
                server = sizes[self._store.run_of(key)]
                size = int(row[0] or 0) - int(row[1] or 0)
                server[topic_id] = server.get(topic_id, 0) + size
        return sizes
