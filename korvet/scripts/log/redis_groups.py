"""Redis's own groups on one partition's stream."""

from korvet.keys import Keys
from korvet.scripts.call import Call, Reply, Script


class GroupSeekReply(Reply):
    """`acked` entries are no longer pending; `more` is 1 when others should not be either."""

    error: int
    acked: int
    more: int


class GroupDestroyReply(Reply):
    """`removed` is 1 when there was such a group."""

    error: int
    removed: int


class GroupReadReply(Reply):
    """What lies from `first` to `last` is the reader's; both -1 for nothing. `claim` is for the
    next call: empty once all that others had left pending is the reader's."""

    error: int
    first: int
    last: int
    claim: bytes


CLAIM_ALL, ALL_CLAIMED = b"0-0", b""

GROUP_SEEK = Script("log.group_seek", GroupSeekReply)
GROUP_DESTROY = Script("log.group_destroy", GroupDestroyReply)
GROUP_READ = Script("log.group_read", GroupReadReply)


def group_seek(
    keys: Keys,
    topic: str,
    partition: int,
    *,
    group: str,
    topic_id: str,
    offset: int,
    move: int,
) -> Call[GroupSeekReply]:
    """The Redis group wants `offset` next, and nothing below is pending."""
    k = keys.partition(topic, partition)
    return Call(GROUP_SEEK, (k.stream, k.log), (group, topic_id, offset, move))


def group_destroy(keys: Keys, topic: str, partition: int, *, group: str) -> Call[GroupDestroyReply]:
    """The Redis group is gone from this partition."""
    k = keys.partition(topic, partition)
    return Call(GROUP_DESTROY, (k.stream,), (group,))


def group_read(
    keys: Keys,
    topic: str,
    partition: int,
    *,
    group: str,
    consumer: str,
    topic_id: str,
    offset: int,
    count: int,
    claim: bytes = ALL_CLAIMED,
) -> Call[GroupReadReply]:
    """A reader of a Redis group is given what it may read now. Whoever has just become the
    partition's reader claims, CLAIM_ALL first."""
    k = keys.partition(topic, partition)
    return Call(GROUP_READ, (k.stream, k.log), (group, consumer, topic_id, offset, count, claim))
