"""Redis's own groups on one partition's stream."""

from korvet.keys import Keys
from korvet.scripts.call import Call, Reply, Script


class FollowReply(Reply):
    """`acked` entries are no longer pending; `more` is 1 when others should not be either."""

    error: int
    acked: int
    more: int


class UnfollowReply(Reply):
    """`removed` is 1 when there was such a group."""

    error: int
    removed: int


class DeliverReply(Reply):
    """What lies from `first` to `last` is the reader's; both -1 for nothing. `claim` is for the
    next call: empty once all that others had left pending is the reader's."""

    error: int
    first: int
    last: int
    claim: bytes


CLAIM_ALL, ALL_CLAIMED = b"0-0", b""

FOLLOW = Script("log.follow", FollowReply)
UNFOLLOW = Script("log.unfollow", UnfollowReply)
DELIVER = Script("log.deliver", DeliverReply)


def follow(
    keys: Keys,
    topic: str,
    partition: int,
    *,
    group: str,
    topic_id: str,
    offset: int,
    move: int,
) -> Call[FollowReply]:
    """The Redis group wants `offset` next, and nothing below is pending."""
    k = keys.partition(topic, partition)
    return Call(FOLLOW, (k.stream, k.log), (group, topic_id, offset, move))


def unfollow(keys: Keys, topic: str, partition: int, *, group: str) -> Call[UnfollowReply]:
    """The Redis group is gone from this partition."""
    k = keys.partition(topic, partition)
    return Call(UNFOLLOW, (k.stream,), (group,))


def deliver(
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
) -> Call[DeliverReply]:
    """A reader of a Redis group is given what it may read now. Whoever has just become the
    partition's reader claims, CLAIM_ALL first."""
    k = keys.partition(topic, partition)
    return Call(DELIVER, (k.stream, k.log), (group, consumer, topic_id, offset, count, claim))
