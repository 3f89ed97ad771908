"""Create missing topics on first use (auto.create.topics.enable)."""

from collections.abc import Awaitable, Callable, Mapping

from korvet import logfmt
from korvet.config.dynamic import DynamicBrokerConfig
from korvet.keys import Keys
from korvet.store.calls import AsyncCalls
from korvet.topics.lifecycle import Refused, create_topic, plan_topic, refuse_above
from korvet.topics.table import Topic, TopicTable

NO_CONFIGS: Mapping[str, str] = {}
logger = logfmt.get("admin.auto_create")


class TopicAutoCreator:
    """Creates topics with the broker's defaults."""

    def __init__(
        self, store: AsyncCalls, keys: Keys, topics: TopicTable, config: DynamicBrokerConfig
    ) -> None:
        self._store = store
        self._keys = keys
        self._topics = topics
        self._config = config

    async def create(
        self,
        name: str,
        configs: Mapping[str, str] = NO_CONFIGS,
        charge: Callable[[int], Awaitable[None]] | None = None,
    ) -> Topic | None:
        """Create the topic unless it exists; None if that is not allowed.

        `charge` counts the partitions against the client's quota. It may raise Refused.
        """
        if self._topics.find_colliding(name) is not None:
            return None
        partitions = self._config.settings.integer("num.partitions")
        try:
            most = self._config.settings.integer("max.topics")
            refuse_above(most, await self._topics.count())
            definition = plan_topic(name, partitions, configs, self._config.topic_configs)
            if charge is not None:
                await charge(definition.partitions)
            await create_topic(self._store, self._keys, name, definition)
        except Refused as refused:
            logger.warning_again("topic not created", topic=name, reason=refused.reason)
            return None
        self._topics.invalidate()
        return await self._topics.get(name)
