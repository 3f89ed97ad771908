"""Log compaction: run the cleaner on every compacted topic, in one broker process at a time."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic

import anyio

from korvet.base import logfmt
from korvet.base.bounded import chunks
from korvet.broker.background.runner import Leases
from korvet.log.cleaner import LogCleaner
from korvet.log.compacted_copy import Superseded
from korvet.log.unchanged import LOOKED_AT, Unchanged, pace
from korvet.store.errors import StoreError, StoreRefused, StoreUnavailable
from korvet.topics.node import Node
from korvet.topics.table import Topic

LEASE_S = 60.0
BACKOFF_CHECK_S = 3.0
"""Max seconds until a change of log.cleaner.backoff.ms applies."""

AT_ONCE = 64
"""Max compacted copies that one round of commands deletes."""

logger = logfmt.get("broker.background")


@dataclass(eq=False, repr=False)
class Compaction:
    """Compacts logs while this process holds the lease."""

    node: Node
    leases: Leases

    def __post_init__(self) -> None:
        self._renewed_at = 0.0
        self._without_copies: set[str] = set()
        self._unchanged = Unchanged(self.node.store, self.node.keys)

    async def run(self) -> None:
        """Compact all topics after each log.cleaner.backoff.ms."""
        while True:
            await self._backoff()
            try:
                await self.compact_all()
            except StoreError as error:
                logger.warning("compaction failed, retrying", reason=str(error))

    async def _backoff(self) -> None:
        """Wait for log.cleaner.backoff.ms; a change of the setting applies to this wait too."""
        began = monotonic()
        while True:
            left = began + self._backoff_s - monotonic()
            if left <= 0:
                return
            await anyio.sleep(min(left, BACKOFF_CHECK_S))

    @property
    def _backoff_s(self) -> float:
        return self.node.settings().integer("log.cleaner.backoff.ms") / 1000

    async def compact_all(self) -> None:
        """Compact every compacted topic whose log is dirty enough."""
        topics = await self.node.topics.all()
        if not await self._drop_copies([each for each in topics if not each.policy.compact]):
            return
        compact = [each for each in topics if each.policy.compact]
        self._unchanged.keep(compact)
        places = [(topic, number) for topic in compact for number in range(topic.partitions)]
        rate = pace(len(places), self._backoff_s)
        for some in chunks(places, LOOKED_AT):
            for topic, number in await self._unchanged.due(some):
                if not await self.hold():
                    return
                await self._compact_one(topic, number)
            if len(some) == LOOKED_AT:
                await anyio.sleep(LOOKED_AT / rate)

    async def _drop_copies(self, topics: Sequence[Topic]) -> bool:
        """Delete the compacted copies that a failed cleaner pass left of these topics.

        The topics are no longer compacted: no later pass would delete the copies. Returns False if
        another process has the lease.
        """
        new = [each for each in topics if each.id not in self._without_copies]
        if new and not await self.hold():
            return False
        self._without_copies &= {each.id for each in topics}
        places = [(topic, number) for topic in new for number in range(topic.partitions)]
        rate = pace(len(places), self._backoff_s)
        for some in chunks(places, AT_ONCE):
            names = [topic.partition(number).compacted for topic, number in some]
            found = await asyncio.gather(
                *(self.node.store.submit_command("UNLINK", name) for name in names),
                return_exceptions=True,
            )
            for (topic, number), error in zip(some, found, strict=True):
                if isinstance(error, StoreError):
                    # Retried in the next round; compaction must not wait for it.
                    logger.warning_again(
                        "stale compacted copies not deleted, retrying", reason=str(error)
                    )
                    return True
                if number == topic.partitions - 1:
                    self._without_copies.add(topic.id)
            if len(some) == AT_ONCE:
                await anyio.sleep(AT_ONCE / rate)
        return True

    async def _compact_one(self, topic: Topic, number: int) -> None:
        """Run the cleaner on a partition; its failure does not affect other partitions."""
        partition_fields = {"topic": topic.name, "partition": number}
        try:
            outcome = await LogCleaner(self.node.store, topic, number, self.rest_and_hold).run()
        except StoreUnavailable as error:
            if isinstance(error, StoreRefused) and error.code == "OOM":
                logger.warning(
                    "partition compaction failed: Redis is out of memory", **partition_fields
                )
            else:  # one node of a cluster may be down: renewing the lease raises if all are
                logger.warning_again("partition compaction failed, retrying", reason=str(error))
            return
        except Exception as error:
            logger.exception("partition compaction failed", error, **partition_fields)
            return
        if outcome is None:
            limits = (topic.policy.min_compaction_lag_ms, topic.policy.delete_retention_ms)
            self._unchanged.settle(topic, number, limits)
        else:
            logger.info("partition compacted", **partition_fields, removed=outcome.removed)

    async def hold(self) -> bool:
        """Acquire or renew the lease; return whether this process holds it."""
        self._renewed_at = monotonic()
        return await self.leases.hold("compaction", LEASE_S)

    async def rest_and_hold(self, seconds: float) -> None:
        """Sleep, and renew the lease once a quarter of its time has passed.

        Raises Superseded if another process has the lease.
        """
        await anyio.sleep(seconds)
        overdue = monotonic() - self._renewed_at > LEASE_S / 4
        if overdue and not await self.hold():
            raise Superseded
