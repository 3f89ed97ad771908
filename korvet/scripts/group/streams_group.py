"""Calls on a streams group (KIP-1071)."""

from collections.abc import Iterable
from typing import TypedDict, Unpack

from korvet.keys import Keys
from korvet.scripts.call import Call, Reply, Script, flat, in_order


class StreamsHeartbeatReply(Reply):
    """`need_topics`: call again with rows of these topics. `missing`: create these and call again.
    `has_assignment`: send `assignment`."""

    error: int
    epoch: int
    has_assignment: int
    assignment: bytes
    next_heartbeat_ms: int
    need_topics: int
    names: list[bytes]
    missing: list[bytes]
    statuses: list[bytes]
    endpoint_epoch: int
    has_endpoints: int
    endpoints: list[bytes]
    wait_ms: int
    rebalances: int


class StreamsDescribeReply(Reply):
    """`partitions`, `tasks` and `members` are flat, as the script says."""

    error: int
    state: bytes
    epoch: int
    assignment_epoch: int
    topology_epoch: int
    topology: bytes
    detail: bytes
    partitions: list[bytes]
    tasks: list[bytes]
    members: list[bytes]


STREAMS_HEARTBEAT = Script("group.streams_heartbeat", StreamsHeartbeatReply)
STREAMS_DESCRIBE = Script("group.streams_describe", StreamsDescribeReply)


class StreamsHeartbeatArgs(TypedDict):
    """Arguments of group.streams_heartbeat, in order."""

    member: str
    epoch: int
    rack: str
    client_id: str
    client_host: str
    session_ms: int
    rebalance_ms: int
    interval_ms: int
    delay_ms: int
    replicas: int
    max_size: int
    max_bytes: int
    is_registered: int
    topology_epoch: int
    topology: bytes
    has_process: int
    process: str
    endpoint: str
    has_tags: int
    tags: bytes
    has_owned: int
    owned: bytes
    endpoint_epoch: int
    shutdown: int
    topics_version: bytes
    resolved: bytes
    creates: int
    instance: str


def streams_heartbeat(
    keys: Keys,
    group_id: str,
    *,
    rows: Iterable[tuple[str, str, str]],
    **args: Unpack[StreamsHeartbeatArgs],
) -> Call[StreamsHeartbeatReply]:
    """Handle a StreamsGroupHeartbeat. Rows are kind, key and value: the topics of what `resolved`
    lists."""
    k = keys.group(group_id)
    return Call(STREAMS_HEARTBEAT, k.consumer, (*in_order(StreamsHeartbeatArgs, args), *flat(rows)))


def streams_describe(keys: Keys, group_id: str) -> Call[StreamsDescribeReply]:
    """Return a streams group with its topology and its members."""
    k = keys.group(group_id)
    return Call(STREAMS_DESCRIBE, (k.group, k.consumer_members, k.target_assignment, k.deadlines))
