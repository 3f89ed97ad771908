"""The mirror of lua/topic: calls on the topics table and the topics' logs."""

from collections.abc import Iterable, Sequence

from korvet.keys import Keys
from korvet.scripts.call import Call, ErrorReply, Script, VersionReply

CREATE = Script("topic.create", VersionReply)
ADD_PARTITIONS = Script("topic.add_partitions", VersionReply)
ALTER = Script("topic.alter", VersionReply)
DELETE = Script("topic.delete", VersionReply)
DELETE_DEFINITION = Script("topic.delete_definition", VersionReply)
FORGET_DELETED = Script("topic.forget_deleted", ErrorReply)


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
) -> Call[VersionReply]:
    """Create a topic with an empty log for each partition."""
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
) -> Call[VersionReply]:
    """Add `partitions` with empty logs to a topic."""
    opened = _logs(keys, topic, partitions)
    return Call(
        ADD_PARTITIONS,
        (keys.topics(), *opened),
        (topic, expected, definition, topic_id, format, mode, bits),
    )


def alter(keys: Keys, *, topic: str, expected: bytes, definition: bytes) -> Call[VersionReply]:
    """Replace a topic's definition if it is the expected one."""
    return Call(ALTER, (keys.topics(),), (topic, expected, definition))


def delete(
    keys: Keys,
    groups: Sequence[str],
    *,
    topic: str,
    expected: bytes,
    registry_version: bytes,
    remote_id: str,
    partitions: int,
) -> Call[VersionReply]:
    """Delete a topic with its logs, Redis groups and its commits in `groups` (group ids)."""
    parts: list[str] = []
    fields: list[str] = []
    for number in range(partitions):
        k = keys.partition(topic, number)
        parts += k.all
        fields.append(k.stream)
    parts += (keys.group_offsets(group) for group in groups)
    return Call(
        DELETE,
        (keys.topics(), keys.groups(), keys.deleted_topics(), *parts),
        (topic, expected, registry_version, remote_id, partitions, *fields),
    )


def delete_definition(
    keys: Keys, *, topic: str, expected: bytes, remote_id: str
) -> Call[VersionReply]:
    """Delete a topic's definition if it is the expected one."""
    return Call(
        DELETE_DEFINITION, (keys.topics(), keys.deleted_topics()), (topic, expected, remote_id)
    )


def forget_deleted(keys: Keys, *, topic_id: str) -> Call[ErrorReply]:
    """Forget a deleted topic whose objects are deleted."""
    return Call(FORGET_DELETED, (keys.deleted_topics(),), (topic_id,))


def _logs(keys: Keys, topic: str, partitions: Iterable[int]) -> list[str]:
    names: list[str] = []
    for number in partitions:
        k = keys.partition(topic, number)
        names += (k.log, k.stream)
    return names
