"""The background task of dead letter queues: copy dead letters that a broker has left.

Rules
- A broker copies dead letters after the request that archived their records. It leaves them if it
  dies first, or if the queue cannot take them.
- Only groups with errors.deadletterqueue.topic.name are looked at, by the broker with the lease.
"""

from korvet.broker.leases import Leases
from korvet.context import Services
from korvet.groups.share_offsets import list_partitions
from korvet.keys import decode_group
from korvet.scripts import share

CHECK_S = 10.0
"""Seconds between two passes over the groups with a dead letter queue."""
LEASE_S = 30.0


class DeadLetterCopies:
    """Copies dead letters that wait, while this process holds the lease."""

    def __init__(self, services: Services, leases: Leases) -> None:
        self._services = services
        self._leases = leases

    async def run_once(self) -> None:
        """Begin to copy the waiting dead letters of every group with a queue."""
        services = self._services
        named = map(decode_group, services.configs.groups())
        groups = [group for group in named if services.share.config(group).has_dead_letters]
        if groups and await self._leases.hold("dead-letters", LEASE_S):
            for group in groups:
                await self._copy(group)

    async def _copy(self, group: str) -> None:
        services = self._services
        _, _, topics = await services.share_offsets.topics_of(group)
        places = list_partitions(topics)
        states = await services.store.run_many(
            share.describe(
                services.keys, topic.name, number, group=group, topic_id=topic.id, most=0
            )
            for topic, number in places
        )
        config = services.share.config(group)
        for place, state in zip(places, states, strict=True):
            services.share.dead_letters.notice(group, config, *place, state.dead_letters)
