"""Check the topics of Kafka 0.7 clients, and create those they produce to."""

from collections.abc import Callable

from korvet.context import Services
from korvet.log.layouts import BYTES, layout_of
from korvet.topics.lifecycle import Refused, create_topic, plan_topic, refuse_colliding
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


async def get_or_create(name: str, services: Services, may_create: Callable[[str], bool]) -> Topic:
    """Return the topic, created with offset.mode=bytes if missing. Raises Refusal."""
    topic = await services.topics.get(name)
    if topic is not None:
        return topic
    if not services.settings.flag("auto.create.topics.enable"):
        raise Refusal(
            LegacyError.WRONG_PARTITION,
            f"there is no topic {name}, and auto.create.topics.enable is off",
        )
    if not may_create(name):
        raise Refusal(LegacyError.WRONG_PARTITION, f"the client may not create topic {name}")
    partitions = services.settings.integer("legacy.num.partitions")
    try:
        definition = plan_topic(name, partitions, {"offset.mode": "bytes"}, services.topic_configs)
        refuse_colliding(services.topics.find_colliding(name), name)
    except Refused as refused:
        raise Refusal(LegacyError.UNKNOWN, refused.reason) from None
    await create_topic(services.store, services.keys, name, definition)
    services.topics.invalidate()
    topic = await services.topics.get(name)
    if topic is None:
        raise Refusal(LegacyError.WRONG_PARTITION, f"topic {name} was deleted again")
    return topic
