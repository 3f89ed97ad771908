"""Calls on one group and its classic members: join, sync, heartbeat, leave, tick.

Member ids, instances and protocol names are bytes in Redis and text here; an empty instance or
member id is none. Times are ms.
"""

from collections.abc import Iterable
from typing import TypedDict, Unpack

from korvet.keys import Keys
from korvet.scripts.call import Arg, Call, ErrorReply, Reply, Script, flat, in_order


class JoinReply(Reply):
    """A member's generation, or `waiting` for it. `members` is flat: id, instance, metadata."""

    error: int
    waiting: int
    generation: int
    protocol_type: bytes
    protocol: bytes
    leader: bytes
    member: bytes
    skip: int
    members: list[bytes]
    wait_ms: int
    rebalances: int


class SyncReply(Reply):
    """A member's assignment, or `waiting` for the leader's SyncGroup."""

    error: int
    waiting: int
    protocol_type: bytes
    protocol: bytes
    assignment: bytes
    wait_ms: int


class MemberReply(Reply):
    """`wait_ms`: ms until the group's next deadline."""

    error: int
    wait_ms: int


class HeartbeatReply(Reply):
    """An error code per member, and per group the ms until its next deadline, in the order in which
    the call names the groups first."""

    errors: list[int]
    waits: list[int]


class LeaveReply(Reply):
    """`results`: an error code per leaver."""

    error: int
    results: list[int]
    wait_ms: int
    rebalances: int


class TickReply(Reply):
    """`expired`: fields of the expired commits. `gone`: 1 deleted, 2 does not exist."""

    error: int
    wait_ms: int
    rebalances: int
    expired: list[bytes]
    gone: int


class DescribeReply(Reply):
    """`members` is flat: id, instance, client id, client host, metadata, assignment."""

    error: int
    type: bytes
    state: bytes
    generation: int
    protocol_type: bytes
    protocol: bytes
    leader: bytes
    size: int
    members: list[bytes]


JOIN = Script("group.join", JoinReply)
POLL_JOIN = Script("group.poll_join", JoinReply)
SYNC = Script("group.sync", SyncReply)
HEARTBEAT = Script("group.heartbeat", HeartbeatReply)
LEAVE = Script("group.leave", LeaveReply)
TICK = Script("group.tick", TickReply)
DESCRIBE = Script("group.describe", DescribeReply)
DELETE = Script("group.delete", ErrorReply)


class JoinArgs(TypedDict):
    """Arguments of group.join, in order."""

    member: str
    fresh_id: str
    instance: str
    client_id: str
    client_host: str
    session_ms: int
    rebalance_ms: int
    protocol_type: str
    require_member_id: int
    skip: int
    is_registered: int
    delay_ms: int
    max_size: int
    max_bytes: int


def join(
    keys: Keys, group_id: str, protocols: Iterable[tuple[str, bytes]], **args: Unpack[JoinArgs]
) -> Call[JoinReply]:
    """Handle a JoinGroup."""
    k = keys.group(group_id)
    return Call(JOIN, k.classic, (*in_order(JoinArgs, args), *flat(protocols)))


def poll_join(keys: Keys, group_id: str, *, member: str, instance: str) -> Call[JoinReply]:
    """Return the generation of a member whose JoinGroup waits, if there is one."""
    k = keys.group(group_id)
    return Call(POLL_JOIN, k.classic, (member, instance))


def sync(
    keys: Keys,
    group_id: str,
    assignments: Iterable[tuple[str, bytes]],
    *,
    member: str,
    instance: str,
    generation: int,
    protocol_type: str,
    protocol: str,
) -> Call[SyncReply]:
    """Handle a SyncGroup; the leader's has the assignments of all members."""
    k = keys.group(group_id)
    request = (member, instance, generation, protocol_type, protocol)
    return Call(SYNC, k.classic, (*request, *flat(assignments)))


def heartbeat(keys: Keys, heartbeats: Iterable[tuple[str, str, str, int]]) -> Call[HeartbeatReply]:
    """Renew sessions: each heartbeat has group id, member, instance and generation. In a cluster
    all have one group."""
    indexes: dict[str, int] = {}
    touched: list[str] = []
    args: list[Arg] = []
    for group_id, member, instance, generation in heartbeats:
        index = indexes.get(group_id)
        if index is None:
            index = indexes[group_id] = len(indexes) + 1
            k = keys.group(group_id)
            touched += (k.group, k.members, k.instances, k.deadlines)
        args += (index, member, instance, generation)
    return Call(HEARTBEAT, tuple(touched), args)


def leave(keys: Keys, group_id: str, leavers: Iterable[tuple[str, str]]) -> Call[LeaveReply]:
    """Remove members, each given by its id and instance."""
    k = keys.group(group_id)
    return Call(
        LEAVE,
        (*k.classic, k.consumer_members, k.target_assignment, k.partition_owners),
        tuple(flat(leavers)),
    )


def tick(
    keys: Keys, group_id: str, *, retention_ms: int, present_ms: int, expected_ms: int = -1
) -> Call[TickReply]:
    """Process the group's expired deadlines."""
    k = keys.group(group_id)
    return Call(
        TICK,
        (
            *k.classic,
            k.offsets,
            k.txn_offsets,
            k.txn_pending,
            k.consumer_members,
            k.target_assignment,
            k.partition_owners,
        ),
        (retention_ms, present_ms, expected_ms),
    )


def describe(keys: Keys, group_id: str, *, full: int) -> Call[DescribeReply]:
    """Return the group, with `full` also its members."""
    k = keys.group(group_id)
    return Call(DESCRIBE, k.classic, (full,))


def delete(keys: Keys, group_id: str, *, commits: int) -> Call[ErrorReply]:
    """Delete a group without members, of which the fields of so many commits were read."""
    k = keys.group(group_id)
    return Call(
        DELETE,
        (
            *k.classic,
            k.offsets,
            k.txn_offsets,
            k.txn_pending,
            k.consumer_members,
            k.target_assignment,
            k.partition_owners,
            k.share_topics,
        ),
        (commits,),
    )
