"""Create the internal topics of a streams group: repartition and changelog topics (KIP-1071)."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from korvet.base.errors import ErrorCode
from korvet.config.dynamic import DynamicBrokerConfig
from korvet.groups.streams_group import decode_pairs
from korvet.store.errors import StoreError
from korvet.topics.lifecycle import (
    MAX_PARTITIONS,
    Refused,
    create_topic,
    plan_topic,
    refuse_above,
    refuse_colliding,
)
from korvet.topics.node import Node
from korvet.topics.table import Definition

CELLS = 4
"""Cells per topic in the reply of lua/group/streams_heartbeat.lua."""


@dataclass(eq=False, repr=False)
class InternalTopics:
    """Creates internal topics with the partitions and configs that their topology has."""

    node: Node
    config: DynamicBrokerConfig

    async def create(
        self,
        missing: Sequence[bytes],
        may_create: Callable[[str], bool],
        charge: Callable[[int], Awaitable[None]],
    ) -> str:
        """Create the topics that a heartbeat lacks. Returns why some could not be, else nothing.

        `charge` counts the partitions against the client's quota. It may raise Refused.
        """
        rows = [missing[at : at + CELLS] for at in range(0, len(missing), CELLS)]
        names = [row[0].decode() for row in rows]
        denied = [name for name in names if not may_create(name)]
        if denied:
            return f"Unauthorized to CREATE on topics {', '.join(denied)}."
        planned: dict[str, Definition] = {}
        failures = []
        for name, (_, partitions, _, configs) in zip(names, rows, strict=True):
            try:
                planned[name] = self._plan(name, int(partitions), dict(decode_pairs(configs)))
            except Refused as refused:
                failures.append(f"{name} ({refused})")
        try:
            await self._create(planned, charge)
        except (Refused, StoreError) as error:
            failures.append(f"{', '.join(planned)} ({error})")
        self.node.topics.invalidate()
        return f"Creation failed: {', '.join(failures)}." if failures else ""

    def _plan(self, name: str, partitions: int, configs: Mapping[str, str]) -> Definition:
        refuse_colliding(self.node.topics.find_colliding(name), name)
        return plan_topic(name, partitions, configs, self.config.topic_configs)

    async def _create(
        self, planned: Mapping[str, Definition], charge: Callable[[int], Awaitable[None]]
    ) -> None:
        total = sum(definition.partitions for definition in planned.values())
        if total > MAX_PARTITIONS:
            reason = f"A group can have {MAX_PARTITIONS} new partitions at once, not {total}."
            raise Refused(ErrorCode.POLICY_VIOLATION, reason)
        if planned:
            max_topics = self.config.settings.integer("max.topics")
            refuse_above(max_topics, await self.node.topics.count())
            await charge(total)
        for name, definition in planned.items():
            error = await create_topic(self.node.store, self.node.keys, name, definition)
            if error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                raise Refused(error, f"{name}: {error.message}")
