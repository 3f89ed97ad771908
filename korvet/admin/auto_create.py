"""Create missing topics on first use (auto.create.topics.enable)."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from korvet.base import logfmt
from korvet.config.dynamic import DynamicBrokerConfig
from korvet.topics.lifecycle import Refused, create_topic, plan_topic, refuse_above
from korvet.topics.node import Node
from korvet.topics.table import Topic

NO_CONFIGS: Mapping[str, str] = {}
logger = logfmt.get("admin.auto_create")


@dataclass(eq=False, repr=False)
class TopicAutoCreator:
    """Creates topics with the broker's defaults."""

    node: Node
    config: DynamicBrokerConfig

    async def create(
        self,
        name: str,
        configs: Mapping[str, str] = NO_CONFIGS,
        charge: Callable[[int], Awaitable[None]] | None = None,
    ) -> Topic | None:
        """Create the topic unless it exists; None if that is not allowed.

        `charge` counts the partitions against the client's quota. It may raise Refused.
        """
        if self.node.topics.find_colliding(name) is not None:
            return None
        partitions = self.config.settings.integer("num.partitions")
        try:
            max_topics = self.config.settings.integer("max.topics")
            refuse_above(max_topics, await self.node.topics.count())
            definition = plan_topic(name, partitions, configs, self.config.topic_configs)
            if charge is not None:
                await charge(definition.partitions)
            await create_topic(self.node.store, self.node.keys, name, definition)
        except Refused as refused:
            logger.warning_again("topic not created", topic=name, reason=refused.reason)
            return None
        self.node.topics.invalidate()
        return await self.node.topics.get(name)
