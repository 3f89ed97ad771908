"""Redis's consumer groups on one partition's stream."""

from korvet.keys import Keys
from korvet.scripts.call import Call, Reply, Script


class GroupSeekReply(Reply):
    """`acked` entries are no longer pending; `more` is 1 if another call has more to do."""

    error: int
    acked: int
    more: int


class GroupDestroyReply(Reply):
    """`removed` is 1 if the group existed, `more` if entries are pending: call again."""

    error: int
    removed: int
    more: int


class GroupReadReply(Reply):
    """The reader may read from `first` to `last`; both -1 for nothing.

    `claim` is for the next call: empty once the reader has all that other members left pending.
    """

    error: int
    first: int
    last: int
    claim: bytes


CLAIM_ALL, ALL_CLAIMED = b"0-0", b""

GROUP_SEEK = Script("log.group_seek", GroupSeekReply)
GROUP_DESTROY = Script("log.group_destroy", GroupDestroyReply)
GROUP_READ = Script("log.group_read", GroupReadReply)


def group_seek(
    keys: Keys, topic: str, partition: int, *, group: str, topic_id: str, offset: int, move: int
) -> Call[GroupSeekReply]:
    """Make `offset` the next one of the Redis group, with nothing below pending."""
    k = keys.partition(topic, partition)
    return Call(GROUP_SEEK, (k.stream, k.log), (group, topic_id, offset, move))


def group_destroy(keys: Keys, topic: str, partition: int, *, group: str) -> Call[GroupDestroyReply]:
    """Destroy the Redis group of this partition."""
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
    """Read through a Redis group.

    A reader that has just got the partition claims pending entries, with CLAIM_ALL first.
    """
    k = keys.partition(topic, partition)
    return Call(GROUP_READ, (k.stream, k.log), (group, consumer, topic_id, offset, count, claim))
