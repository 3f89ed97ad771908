"""Calls on a share group (KIP-932)."""

from collections.abc import Iterable
from typing import TypedDict, Unpack

from korvet.keys import Keys
from korvet.scripts.call import Call, ErrorReply, Reply, Script, flat, in_order


class ShareHeartbeatReply(Reply):
    """`need_topics`: call again with rows of these topics. `has_assignment`: send `assignment`."""

    error: int
    epoch: int
    has_assignment: int
    assignment: bytes
    next_heartbeat_ms: int
    need_topics: int
    names: list[bytes]
    wait_ms: int
    rebalances: int


class ShareTopicsReply(Reply):
    """`topics` is flat: name, topic id."""

    error: int
    state: bytes
    topics: list[bytes]


SHARE_HEARTBEAT = Script("group.share_heartbeat", ShareHeartbeatReply)
LIST_SHARE_TOPICS = Script("group.list_share_topics", ShareTopicsReply)
SHARE_ALTER_TOPICS = Script("group.share_alter_topics", ErrorReply)


class ShareHeartbeatArgs(TypedDict):
    """Arguments of group.share_heartbeat, in order."""

    member: str
    epoch: int
    rack: str
    client_id: str
    client_host: str
    session_ms: int
    interval_ms: int
    max_size: int
    max_bytes: int
    max_topics: int
    is_registered: int
    has_names: int
    names: bytes
    topics_version: bytes
    resolved: bytes


def share_heartbeat(
    keys: Keys,
    group_id: str,
    *,
    rows: Iterable[tuple[str, str, str]],
    **args: Unpack[ShareHeartbeatArgs],
) -> Call[ShareHeartbeatReply]:
    """Handle a ShareGroupHeartbeat. Rows are kind, key and value: the topics of what `resolved`
    lists."""
    k = keys.group(group_id)
    return Call(
        SHARE_HEARTBEAT,
        (k.group, k.consumer_members, k.target_assignment, k.share_topics, k.deadlines),
        (*in_order(ShareHeartbeatArgs, args), *flat(rows)),
    )


def list_share_topics(keys: Keys, group_id: str) -> Call[ShareTopicsReply]:
    """Return the topics of a share group."""
    k = keys.group(group_id)
    return Call(LIST_SHARE_TOPICS, (k.group, k.share_topics, k.deadlines))


def share_alter_topics(
    keys: Keys,
    group_id: str,
    topics: Iterable[tuple[str, str]],
    *,
    creates: int,
    is_registered: int,
) -> Call[ErrorReply]:
    """Add topics with their ids to an empty share group, or remove those with an empty id."""
    k = keys.group(group_id)
    return Call(
        SHARE_ALTER_TOPICS,
        (k.group, k.consumer_members, k.target_assignment, k.share_topics, k.deadlines),
        (creates, is_registered, *flat(topics)),
    )
