"""The mirror of lua/topic: calls on the table of topics and what hangs on its rows."""

from collections.abc import Iterable, Sequence

from korvet.keys import Keys
from korvet.scripts.call import Call, Reply, Script


class TopicReply(Reply):
    """`version` is the topics table's version after the change, -1 when refused."""

    error: int
    version: int


CREATE = Script("topic.create", TopicReply)
ADD_PARTITIONS = Script("topic.add_partitions", TopicReply)
ALTER = Script("topic.alter", TopicReply)
DELETE = Script("topic.delete", TopicReply)
DELETE_DEFINITION = Script("topic.delete_definition", TopicReply)


def create(
    keys: Keys,
    partitions: int,
    *,
    topic: str,
    definition: bytes,
    topic_id: str,
    format: str,
    mode: str,
    bits: int,
) -> Call[TopicReply]:
    """A topic exists, each of its partitions with an empty log."""
    opened = _logs(keys, topic, range(partitions))
    return Call(CREATE, (keys.topics(), *opened), (topic, definition, topic_id, format, mode, bits))


def add_partitions(
    keys: Keys,
    partitions: range,
    *,
    topic: str,
    expected: bytes,
    definition: bytes,
    topic_id: str,
    format: str,
    mode: str,
    bits: int,
) -> Call[TopicReply]:
    """The topic also has `partitions`, empty."""
    opened = _logs(keys, topic, partitions)
    return Call(
        ADD_PARTITIONS,
        (keys.topics(), *opened),
        (topic, expected, definition, topic_id, format, mode, bits),
    )


def alter(keys: Keys, *, topic: str, expected: bytes, definition: bytes) -> Call[TopicReply]:
    """The topic's definition is the new one, provided it was the expected one."""
    return Call(ALTER, (keys.topics(),), (topic, expected, definition))


def delete(
    keys: Keys,
    groups: Sequence[str],
    *,
    topic: str,
    expected: bytes,
    registry_version: bytes,
    partitions: int,
) -> Call[TopicReply]:
    """The topic is gone with its logs, Redis groups and the commits of `groups` (group ids)."""
    parts: list[str] = []
    fields: list[str] = []
    for number in range(partitions):
        k = keys.partition(topic, number)
        parts += k.all
        fields.append(k.stream)
    parts += (keys.group_offsets(group) for group in groups)
    return Call(
        DELETE,
        (keys.topics(), keys.groups(), *parts),
        (topic, expected, registry_version, partitions, *fields),
    )


def delete_definition(keys: Keys, *, topic: str, expected: bytes) -> Call[TopicReply]:
    """The topic's definition is gone, provided it was the expected one."""
    return Call(DELETE_DEFINITION, (keys.topics(),), (topic, expected))


def _logs(keys: Keys, topic: str, partitions: Iterable[int]) -> list[str]:
    names: list[str] = []
    for number in partitions:
        k = keys.partition(topic, number)
        names += (k.log, k.stream)
    return names
