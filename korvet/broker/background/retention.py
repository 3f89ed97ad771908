"""Retention of records and of idle producers, and tables, on every partition of every topic.

Rules of `retention.consumed`, which removes what the topic's groups have committed
- From Redis, if it is copied to segments; with retention.consumed.delete, from the log.
- Records older than retention.consumed.max.ms are removed without a commit: a group that stopped
  does not hold memory for good.
- The commits are in the groups' slots, the log is in the partition's: the task reads the lowest
  commit, and the script of the partition removes what is below it. Commits move forward, so the
  offset is still valid then. A reset in between has no effect on what is removed.
"""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from korvet.base import logfmt
from korvet.broker.background.runner import Leases
from korvet.groups.consumed import Consumed, list_consumed
from korvet.log.foreign_entries import adopt
from korvet.log.tables import fills, is_of_partition
from korvet.log.unchanged import pace
from korvet.scripts.call import Call, Reply
from korvet.scripts.producer_state import CLASSES
from korvet.store.errors import StoreError, StoreUnavailable
from korvet.topics.node import Node
from korvet.topics.table import Topic

AT_ONCE = 64
"""Max partitions of a topic that one round of calls covers."""

RETENTION_STEPS = 64
"""Max index steps one call removes: bounds how long the script blocks Redis."""

PRODUCERS_S = 600.0
"""Seconds between two expirations of idle producers."""

FILLS_S = 1.0
"""Seconds between two fills of tables: they have the records of other programs after that time."""

FILL_PAUSE_S = 0.02
"""Seconds between two calls of a fill, each up to some 10 ms of Redis's time."""

CONSUMED_S = 1.0
"""Seconds between two passes over the topics with retention.consumed."""
CONSUMED_LEASE_S = 10.0

R = TypeVar("R", bound=Reply)

logger = logfmt.get("broker.background")


@dataclass(eq=False, repr=False)
class Retention:
    """Removes expired entries and idle producers, and fills tables, each with a lease."""

    node: Node
    leases: Leases

    def __post_init__(self) -> None:
        self.interval_s = self.node.settings().integer("log.retention.check.interval.ms") / 1000

    async def retain_all(self) -> None:
        """Apply retention to every topic, and count its foreign entries.

        The pass is spread over time: the commands of all partitions at once would delay clients.
        """
        topics = await self.node.topics.all()
        total = sum(topic.partitions for topic in topics)
        rate = pace(total, self.interval_s)
        for topic in topics:
            await self._retain_topic(topic, rate)

    async def _retain_topic(self, topic: Topic, rate: float) -> None:
        policy = topic.policy
        limits = (policy.retention_ms, policy.retention_bytes) if policy.delete else (-1, -1)
        pending = list(range(topic.partitions))
        adopted: set[int] = set()
        while pending:
            calls = {
                number: topic.partition(number).apply_retention(
                    retention_ms=limits[0], retention_bytes=limits[1], steps=RETENTION_STEPS
                )
                for number in pending[:AT_ONCE]
            }
            replies = await self._run_per_partition(topic, calls, "retention", self.interval_s)
            removed = sum(reply.removed for reply in replies.values())
            if removed:
                self.node.metrics.expired_records.add(removed)
                logger.info("expired entries removed", topic=topic.name, entries=removed)
            uncounted = {n for n, reply in replies.items() if reply.uncounted} - adopted
            adopted |= uncounted
            for number in uncounted:
                await adopt(self.node.store, topic, number)
            more = [n for n, reply in replies.items() if reply.more or n in uncounted]
            pending = more + pending[AT_ONCE:]
            await asyncio.sleep(len(calls) / rate)

    async def expire_producers(self) -> None:
        """Expire the idle producers of every partition, and the ids of its records."""
        silence_ms = self.node.settings().integer("producer.id.expiration.ms")
        for topic in await self.node.topics.all():
            for number in range(topic.partitions):
                cursor = b"0"
                while True:
                    call = topic.partition(number).expire_producers(
                        CLASSES, cursor=cursor, silence_ms=silence_ms
                    )
                    replies = await self._run_per_partition(
                        topic, {number: call}, "producers", PRODUCERS_S
                    )
                    cursor = replies[number].cursor if replies else b"0"
                    if cursor == b"0":
                        break
                if topic.policy.dedupe_window_ms:
                    await self._run_per_partition(
                        topic,
                        {number: topic.partition(number).set_dedupe()},
                        "producers",
                        PRODUCERS_S,
                    )

    async def fill_tables(self) -> None:
        """Add to every table what no append has added."""
        topics = [topic for topic in await self.node.topics.all() if topic.policy.table_enable]
        if not topics or not await self.leases.hold("tables", FILLS_S * 5):
            return
        for topic in topics:
            for number in range(topic.partitions):
                try:
                    async for reply in fills(self.node.store, topic.partition(number)):
                        if reply.more:
                            await asyncio.sleep(FILL_PAUSE_S)
                except StoreError as error:
                    if not is_of_partition(error):
                        raise
                    logger.warning_again(
                        "table fill failed, retrying",
                        topic=topic.name,
                        partition=number,
                        reason=str(error),
                    )

    async def _run_per_partition(
        self, topic: Topic, calls: Mapping[int, Call[R]], lease: str, every: float
    ) -> dict[int, R]:
        """Return the replies by partition.

        An error of one partition is logged and does not affect the others. If one Redis of a
        cluster is unavailable, the other partitions' replies are returned; if no Redis is, renewing
        the lease raises.
        """
        found = await asyncio.gather(
            *(self.node.store.submit(call) for call in calls.values()), return_exceptions=True
        )
        replies: dict[int, R] = {}
        away: StoreUnavailable | None = None
        for number, reply in zip(calls, found, strict=True):
            if isinstance(reply, StoreUnavailable):
                away = reply
            elif not isinstance(reply, StoreError | Reply):
                raise reply
            elif isinstance(reply, StoreError):
                logger.error(
                    "background task failed", topic=topic.name, partition=number, error=reply
                )
            else:
                replies[number] = reply
        if away is not None:
            logger.warning_again(
                "some partitions unavailable, retrying", task=lease, reason=str(away)
            )
            await self.leases.hold(lease, every * 2)
        return replies

    async def remove_all_consumed(self) -> None:
        """Remove what is consumed, of every topic with retention.consumed."""
        topics = [each for each in await self.node.topics.all() if each.policy.consumed_by]
        if not topics or not await self.leases.hold("consumed-retention", CONSUMED_LEASE_S):
            return
        for topic in topics:
            try:
                await self.remove_consumed(topic)
            except StoreError as error:
                logger.warning_again(
                    "consumed retention failed, retrying", topic=topic.name, reason=str(error)
                )

    async def remove_consumed(self, topic: Topic) -> None:
        """Remove what is consumed or too old, of each partition."""
        for number, found in enumerate(await list_consumed(self.node.store, self.node.keys, topic)):
            for call in self._calls(topic, number, found):
                more = 1
                while more:
                    more = (await self.node.store.run(call)).more
            if topic.policy.consumed_delete and found.offset > 0:
                await self._delete(topic, number, found.offset)

    def _calls(self, topic: Topic, number: int, consumed: Consumed) -> Iterator[Call[Any]]:
        """Yield the calls to repeat until there is no more to remove."""
        policy, partition = topic.policy, topic.partition(number)
        if policy.remote_storage and consumed.offset > 0:
            yield partition.trim_local(before=consumed.offset, steps=RETENTION_STEPS)
        if policy.consumed_max_ms >= 0:
            yield partition.apply_retention(
                retention_ms=policy.consumed_max_ms,
                retention_bytes=-1,
                steps=RETENTION_STEPS,
                is_local=int(not policy.consumed_delete),
            )

    async def _delete(self, topic: Topic, number: int, before: int) -> None:
        while before >= 0:
            reply = await self.node.store.run(topic.partition(number).delete_records(before=before))
            before = -1 if reply.error else reply.again
