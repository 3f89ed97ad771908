"""Check the topics of Kafka 0.7 clients, and create those they produce to."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from korvet.config.dynamic import DynamicBrokerConfig
from korvet.log.layouts import BYTES, layout_of
from korvet.topics.lifecycle import (
    Refused,
    create_topic,
    plan_topic,
    refuse_above,
    refuse_colliding,
)
from korvet.topics.node import Node
from korvet.topics.table import Topic
from korvet.wire.requests_v07 import LegacyError


class Refusal(Exception):
    """A request that cannot be served: 0.7's error code and a sentence for the log."""

    def __init__(self, error: LegacyError, reason: str) -> None:
        super().__init__(reason)
        self.error = error


def check_partition(topic: Topic, partition: int) -> Topic:
    """Return the topic. Raises Refusal unless its offsets are byte positions and it has the
    partition."""
    if layout_of(topic) is not BYTES:
        raise Refusal(
            LegacyError.WRONG_PARTITION,
            f"topic {topic.name} has offset.mode={topic.policy.offset_mode}: "
            "Kafka 0.7 clients need offset.mode=bytes",
        )
    if not 0 <= partition < topic.partitions:
        raise Refusal(
            LegacyError.WRONG_PARTITION,
            f"topic {topic.name} has the partitions 0 to {topic.partitions - 1}, not {partition}",
        )
    return topic


Admit = Callable[[str, int], Awaitable[None]]
"""Raises Refusal if the client may not create the topic, now, with so many partitions."""


@dataclass(eq=False)
class LegacyTopics:
    """The topic table, as Kafka 0.7 clients use it."""

    node: Node
    config: DynamicBrokerConfig

    async def find(self, name: str, partition: int) -> Topic | None:
        """Return the topic, or None if it does not exist. Raises Refusal for its partition."""
        topic = await self.node.topics.get(name)
        if topic is not None:
            return check_partition(topic, partition)
        if not 0 <= partition < self.config.settings.integer("legacy.num.partitions"):
            raise Refusal(
                LegacyError.WRONG_PARTITION,
                f"topic {name} does not exist, and would have no partition {partition}",
            )
        return None

    async def get_or_create(self, name: str, admit: Admit) -> Topic:
        """Return the topic, created with offset.mode=bytes if missing. Raises Refusal."""
        topic = await self.node.topics.get(name)
        if topic is not None:
            return topic
        settings = self.config.settings
        if not settings.flag("auto.create.topics.enable"):
            raise Refusal(
                LegacyError.WRONG_PARTITION,
                f"there is no topic {name}, and auto.create.topics.enable is off",
            )
        partitions, configs = settings.integer("legacy.num.partitions"), {"offset.mode": "bytes"}
        try:
            definition = plan_topic(name, partitions, configs, self.config.topic_configs)
            await admit(name, partitions)
            refuse_above(settings.integer("max.topics"), await self.node.topics.count())
            refuse_colliding(self.node.topics.find_colliding(name), name)
            await create_topic(self.node.store, self.node.keys, name, definition)
        except Refused as refused:
            raise Refusal(LegacyError.UNKNOWN, refused.reason) from None
        self.node.topics.invalidate()
        topic = await self.node.topics.get(name)
        if topic is None:
            raise Refusal(LegacyError.WRONG_PARTITION, f"topic {name} was deleted again")
        return topic
