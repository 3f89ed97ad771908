"""Create topics that clients need: missing ones on first use, and those of streams groups."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from korvet.base import logfmt
from korvet.base.errors import ErrorCode
from korvet.config.dynamic import DynamicBrokerConfig
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
from korvet.topics.table import Definition, Topic

NO_CONFIGS: Mapping[str, str] = {}
Charge = Callable[[int], Awaitable[None]]
"""Counts new partitions against the client's quota. May raise Refused."""
NewTopic = tuple[str, int, Mapping[str, str]]
"""Name, partitions and configs."""
logger = logfmt.get("admin.auto_create")


@dataclass(eq=False, repr=False)
class TopicAutoCreator:
    """Creates topics with the broker's defaults, or as a topology has them."""

    node: Node
    config: DynamicBrokerConfig

    async def create(
        self, name: str, configs: Mapping[str, str] = NO_CONFIGS, charge: Charge | None = None
    ) -> Topic | None:
        """Create the topic unless it exists; None if that is not allowed."""
        if self.node.topics.find_colliding(name) is not None:
            return None
        partitions = self.config.settings.integer("num.partitions")
        try:
            definition = plan_topic(name, partitions, configs, self.config.topic_configs)
            await self._admit(definition.partitions, charge)
            await create_topic(self.node.store, self.node.keys, name, definition)
        except Refused as refused:
            logger.warning_again("topic not created", topic=name, reason=refused.reason)
            return None
        self.node.topics.invalidate()
        return await self.node.topics.get(name)

    async def create_internal(
        self, missing: Sequence[NewTopic], may_create: Callable[[str], bool], charge: Charge
    ) -> str:
        """Create the repartition and changelog topics that a streams group lacks (KIP-1071).

        Returns why some could not be, else nothing.
        """
        denied = [name for name, _, _ in missing if not may_create(name)]
        if denied:
            return f"Unauthorized to CREATE on topics {', '.join(denied)}."
        planned: dict[str, Definition] = {}
        failures = []
        for name, partitions, configs in missing:
            try:
                refuse_colliding(self.node.topics.find_colliding(name), name)
                planned[name] = plan_topic(name, partitions, configs, self.config.topic_configs)
            except Refused as refused:
                failures.append(f"{name} ({refused})")
        try:
            await self._create_all(planned, charge)
        except (Refused, StoreError) as error:
            failures.append(f"{', '.join(planned)} ({error})")
        self.node.topics.invalidate()
        return f"Creation failed: {', '.join(failures)}." if failures else ""

    async def _create_all(self, planned: Mapping[str, Definition], charge: Charge) -> None:
        total = sum(definition.partitions for definition in planned.values())
        if total > MAX_PARTITIONS:
            reason = f"A group can have {MAX_PARTITIONS} new partitions at once, not {total}."
            raise Refused(ErrorCode.POLICY_VIOLATION, reason)
        if planned:
            await self._admit(total, charge)
        for name, definition in planned.items():
            error = await create_topic(self.node.store, self.node.keys, name, definition)
            if error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                raise Refused(error, f"{name}: {error.message}")

    async def _admit(self, partitions: int, charge: Charge | None) -> None:
        """Refuse topics above max.topics, and charge the new partitions. Raises Refused."""
        max_topics = self.config.settings.integer("max.topics")
        refuse_above(max_topics, await self.node.topics.count())
        if charge is not None:
            await charge(partitions)
