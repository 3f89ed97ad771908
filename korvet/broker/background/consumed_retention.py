"""The background task of `retention.consumed`: remove what the topic's groups have committed.

Rules
- From Redis, if it is copied to segments; with retention.consumed.delete, from the log.
- Records older than retention.consumed.max.ms are removed without a commit: a group that stopped
  does not hold memory for good.
- The commits are in the groups' slots, the log is in the partition's: the task reads the lowest
  commit, and the script of the partition removes what is below it. Commits move forward, so the
  offset is still valid then. A reset in between has no effect on what is removed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from korvet.base import logfmt
from korvet.broker.background.leases import Leases
from korvet.groups.consumed import Consumed, list_consumed
from korvet.scripts.call import Call
from korvet.store.errors import StoreError
from korvet.topics.node import Node
from korvet.topics.table import Topic

CHECK_S = 1.0
"""Seconds between two passes over the topics with retention.consumed."""
LEASE_S = 10.0
STEPS = 64
"""Max index steps one call removes: bounds how long the script blocks Redis."""
logger = logfmt.get("broker.consumed_retention")


@dataclass(eq=False, repr=False)
class ConsumedRetention:
    """Removes consumed records while this process holds the lease."""

    node: Node
    leases: Leases

    async def run_once(self) -> None:
        """Remove what is consumed, of every topic with retention.consumed."""
        topics = [each for each in await self.node.topics.all() if each.policy.consumed_by]
        if not topics or not await self.leases.hold("consumed-retention", LEASE_S):
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
            yield partition.trim_local(before=consumed.offset, steps=STEPS)
        if policy.consumed_max_ms >= 0:
            yield partition.apply_retention(
                retention_ms=policy.consumed_max_ms,
                retention_bytes=-1,
                steps=STEPS,
                is_local=int(not policy.consumed_delete),
            )

    async def _delete(self, topic: Topic, number: int, before: int) -> None:
        while before >= 0:
            reply = await self.node.store.run(topic.partition(number).delete_records(before=before))
            before = -1 if reply.error else reply.again
