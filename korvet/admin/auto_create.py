"""Creating a topic because somebody used its name (auto.create.topics.enable)."""

from korvet.context import Context
from korvet.topics.lifecycle import Refused, create_topic, plan_topic
from korvet.topics.table import Topic


async def auto_create(name: str, context: Context) -> Topic | None:
    """The topic, created with defaults unless it is there; None: it cannot have that name."""
    if context.topics.alike(name) is not None:
        return None
    try:
        definition = plan_topic(
            name, context.settings.integer("num.partitions"), {}, context.services.topic_configs
        )
    except Refused:
        return None
    await create_topic(context.store, context.keys, name, definition)
    context.topics.drop()
    return await context.topics.get(name)
