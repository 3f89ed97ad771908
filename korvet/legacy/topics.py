"""Which topics a Kafka 0.7 client can use, and the ones that come to be because it produces."""

from korvet.context import Node
from korvet.legacy.frames import LegacyError
from korvet.topic_changes import Refused, create_topic, plan_topic, refuse_beside
from korvet.topics import Topic


class Refusal(Exception):
    """A request cannot be served: 0.7's error code and a sentence for the log."""

    def __init__(self, error: LegacyError, reason: str) -> None:
        super().__init__(reason)
        self.error = error


def usable(topic: Topic, partition: int) -> Topic:
    """The topic itself; Refusal when its offsets are no byte positions, or not that many."""
    if not topic.is_bytes:
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


async def created(name: str, node: Node) -> Topic:
    """The topic, made with offset.mode=bytes unless it is there; Refusal for one that cannot be."""
    topic = await node.topics.get(name)
    if topic is not None:
        return topic
    if not node.settings.flag("auto.create.topics.enable"):
        raise Refusal(
            LegacyError.WRONG_PARTITION,
            f"there is no topic {name}, and auto.create.topics.enable is off",
        )
    partitions = node.settings.integer("legacy.num.partitions")
    try:
        definition = plan_topic(name, partitions, {"offset.mode": "bytes"}, node.topic_configs)
        refuse_beside(node.topics.alike(name), name)
    except Refused as refused:
        raise Refusal(LegacyError.UNKNOWN, refused.reason) from None
    await create_topic(node.store, node.keys, name, definition)
    node.topics.drop()
    topic = await node.topics.get(name)
    if topic is None:
        raise Refusal(LegacyError.WRONG_PARTITION, f"topic {name} was deleted at once")
    return topic
