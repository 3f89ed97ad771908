"""The background task of dead letter queues: copy dead letters that a broker has left.

Rules
- A broker copies dead letters after the request that archived their records. It leaves them if it
  dies first, or if the queue cannot take them.
- Only groups with errors.deadletterqueue.topic.name are looked at, by the broker with the lease.
"""

from dataclasses import dataclass

from korvet.broker.background.leases import Leases
from korvet.config.dynamic import ConfigTable
from korvet.groups.share_offsets import ShareOffsets, list_partitions
from korvet.scripts.call import decode_group
from korvet.share.service import ShareService
from korvet.store.async_store import AsyncStore

CHECK_S = 10.0
"""Seconds between two passes over the groups with a dead letter queue."""
LEASE_S = 30.0


@dataclass(eq=False, repr=False)
class DeadLetterCopies:
    """Copies dead letters that wait, while this process holds the lease."""

    store: AsyncStore
    configs: ConfigTable
    offsets: ShareOffsets
    share_service: ShareService
    leases: Leases

    def __post_init__(self) -> None:
        self._share = self.share_service

    async def run_once(self) -> None:
        """Begin to copy the waiting dead letters of every group with a queue."""
        named = map(decode_group, self.configs.groups())
        groups = [group for group in named if self._share.config(group).has_dead_letters]
        if groups and await self.leases.hold("dead-letters", LEASE_S):
            for group in groups:
                await self._copy(group)

    async def _copy(self, group: str) -> None:
        _, _, topics = await self.offsets.topics_of(group)
        places = list_partitions(topics)
        states = await self.store.run_many(
            topic.partition(number).share_describe(group=group, most=0) for topic, number in places
        )
        config = self._share.config(group)
        for partition, state in zip(places, states, strict=True):
            self._share.dead_letters.notice(group, config, *partition, state.dead_letters)
