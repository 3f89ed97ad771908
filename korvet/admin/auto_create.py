"""Create a topic because a client used its name (auto.create.topics.enable)."""

from korvet.config.topic_policy import TopicConfigs
from korvet.config.values import Settings
from korvet.keys import Keys
from korvet.store.async_store import AsyncStore
from korvet.topics.lifecycle import Refused, create_topic, plan_topic
from korvet.topics.table import Topic, TopicTable


async def auto_create(
    name: str,
    store: AsyncStore,
    keys: Keys,
    topics: TopicTable,
    settings: Settings,
    configs: TopicConfigs,
) -> Topic | None:
    """Return the topic, created with defaults if missing; None if it cannot have that name."""
    if topics.alike(name) is not None:
        return None
    try:
        definition = plan_topic(name, settings.integer("num.partitions"), {}, configs)
    except Refused:
        return None
    await create_topic(store, keys, name, definition)
    topics.drop()
    return await topics.get(name)
