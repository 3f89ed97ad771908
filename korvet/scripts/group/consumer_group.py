"""Calls on a consumer group (KIP-848)."""

from collections.abc import Iterable
from typing import TypedDict, Unpack

from korvet.keys import Keys
from korvet.scripts.call import Call, Reply, Script, flat, in_order


class ConsumerHeartbeatReply(Reply):
    """`need_topics`: call again with rows of these topics. `has_assignment`: send `assignment`."""

    error: int
    epoch: int
    has_assignment: int
    assignment: bytes
    next_heartbeat_ms: int
    need_topics: int
    names: list[bytes]
    regexes: list[bytes]
    wait_ms: int
    rebalances: int


class ConsumerDescribeReply(Reply):
    """`members` is flat, CELLS each, in the order of lua/group/consumer_describe.lua."""

    error: int
    state: bytes
    epoch: int
    assignment_epoch: int
    assignor: bytes
    members: list[bytes]


CONSUMER_HEARTBEAT = Script("group.consumer_heartbeat", ConsumerHeartbeatReply)
CONSUMER_DESCRIBE = Script("group.consumer_describe", ConsumerDescribeReply)


class ConsumerHeartbeatArgs(TypedDict):
    """Arguments of group.consumer_heartbeat, in order."""

    member: str
    epoch: int
    instance: str
    rack: str
    client_id: str
    client_host: str
    session_ms: int
    rebalance_ms: int
    assignor: str
    max_size: int
    max_bytes: int
    max_topics: int
    is_registered: int
    subscription_mask: int
    names: bytes
    regex: str
    has_owned: int
    owned: bytes
    topics_version: bytes
    resolved: bytes


def consumer_heartbeat(
    keys: Keys,
    group_id: str,
    *,
    rows: Iterable[tuple[str, str, str]],
    **args: Unpack[ConsumerHeartbeatArgs],
) -> Call[ConsumerHeartbeatReply]:
    """Handle a ConsumerGroupHeartbeat. Rows are kind, key and value: the topics of what
    `resolved` lists."""
    k = keys.group(group_id)
    return Call(
        CONSUMER_HEARTBEAT, k.consumer, (*in_order(ConsumerHeartbeatArgs, args), *flat(rows))
    )


def consumer_describe(keys: Keys, group_id: str, *, type: str) -> Call[ConsumerDescribeReply]:
    """Return a consumer or share group with its members."""
    k = keys.group(group_id)
    return Call(
        CONSUMER_DESCRIBE, (k.group, k.consumer_members, k.target_assignment, k.deadlines), (type,)
    )
