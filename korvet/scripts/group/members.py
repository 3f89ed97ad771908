"""Calls on one classic group and its members: joining, staying, leaving, and what comes of silence.

Member ids, instances and protocol names are bytes in Redis and text here; an empty instance or
member id stands for none. Times are ms.
"""

from collections.abc import Iterable

from korvet.keys import Keys
from korvet.scripts.call import Arg, Call, Reply, Script


class JoinReply(Reply):
    """A place in a generation, or `waiting` for one. `members` is flat: id, instance, metadata."""

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
    began: int


class SyncReply(Reply):
    """A member's assignment, or `waiting` for the leader's word."""

    error: int
    waiting: int
    protocol_type: bytes
    protocol: bytes
    assignment: bytes
    wait_ms: int


class MemberReply(Reply):
    """`wait_ms` is the time until the group's next deadline."""

    error: int
    wait_ms: int


class HeartbeatReply(Reply):
    """An error code for each member, and for each group the time until its next deadline, in the
    order in which the call names them first."""

    errors: list[int]
    waits: list[int]


class LeaveReply(Reply):
    """`results` has an error code for each leaver."""

    error: int
    results: list[int]
    wait_ms: int
    began: int


class TickReply(Reply):
    """What was due has happened; `expired` are fields of commits that are gone."""

    error: int
    wait_ms: int
    began: int
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


class DeleteReply(Reply):
    """`fields` are those of the commits the group had."""

    error: int
    fields: list[bytes]


JOIN = Script("group.join", JoinReply)
POLL_JOIN = Script("group.poll_join", JoinReply)
SYNC = Script("group.sync", SyncReply)
HEARTBEAT = Script("group.heartbeat", HeartbeatReply)
LEAVE = Script("group.leave", LeaveReply)
TICK = Script("group.tick", TickReply)
DESCRIBE = Script("group.describe", DescribeReply)
DELETE = Script("group.delete", DeleteReply)


def join(
    keys: Keys,
    group_id: str,
    protocols: Iterable[tuple[str, bytes]],
    *,
    member: str,
    fresh_id: str,
    instance: str,
    client_id: str,
    client_host: str,
    session_ms: int,
    rebalance_ms: int,
    protocol_type: str,
    require_member_id: int,
    skip: int,
    is_registered: int,
    delay_ms: int,
    max_size: int,
) -> Call[JoinReply]:
    """A member takes part in the next generation, or keeps its place in this one."""
    k = keys.group(group_id)
    offered: list[Arg] = []
    for name, metadata in protocols:
        offered += (name, metadata)
    return Call(
        JOIN,
        (
            k.group,
            k.members,
            k.clients,
            k.protocols,
            k.instances,
            k.assignments,
            k.deadlines,
        ),
        (
            member,
            fresh_id,
            instance,
            client_id,
            client_host,
            session_ms,
            rebalance_ms,
            protocol_type,
            require_member_id,
            skip,
            is_registered,
            delay_ms,
            max_size,
            *offered,
        ),
    )


def poll_join(keys: Keys, group_id: str, *, member: str, instance: str) -> Call[JoinReply]:
    """Whether a member that waits has its place now."""
    k = keys.group(group_id)
    return Call(
        POLL_JOIN,
        (k.group, k.members, k.clients, k.protocols, k.instances, k.assignments, k.deadlines),
        (member, instance),
    )


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
    """A member asks for its assignment; the leader brings everybody's."""
    k = keys.group(group_id)
    parts: list[Arg] = []
    for target, assignment in assignments:
        parts += (target, assignment)
    return Call(
        SYNC,
        (k.group, k.members, k.clients, k.protocols, k.instances, k.assignments, k.deadlines),
        (member, instance, generation, protocol_type, protocol, *parts),
    )


def heartbeat(keys: Keys, beats: Iterable[tuple[str, str, str, int]]) -> Call[HeartbeatReply]:
    """Members say they are alive: each beat has group id, member, instance and generation. In a
    cluster all are of one group."""
    places: dict[str, int] = {}
    touched: list[str] = []
    args: list[Arg] = []
    for group_id, member, instance, generation in beats:
        place = places.get(group_id)
        if place is None:
            place = places[group_id] = len(places) + 1
            k = keys.group(group_id)
            touched += (k.group, k.members, k.instances, k.deadlines)
        args += (place, member, instance, generation)
    return Call(HEARTBEAT, tuple(touched), args)


def leave(keys: Keys, group_id: str, leavers: Iterable[tuple[str, str]]) -> Call[LeaveReply]:
    """Members, each by its id and instance, are out of the group."""
    k = keys.group(group_id)
    flat: list[Arg] = []
    for member, instance in leavers:
        flat += (member, instance)
    return Call(
        LEAVE,
        (
            k.group,
            k.members,
            k.clients,
            k.protocols,
            k.instances,
            k.assignments,
            k.deadlines,
            k.consumer_members,
            k.target_assignment,
            k.partition_owners,
        ),
        flat,
    )


def tick(keys: Keys, group_id: str, *, retention_ms: int, present_ms: int) -> Call[TickReply]:
    """What is due in the group happens."""
    k = keys.group(group_id)
    return Call(
        TICK,
        (
            k.group,
            k.members,
            k.clients,
            k.protocols,
            k.instances,
            k.assignments,
            k.deadlines,
            k.offsets,
            k.txn_offsets,
            k.consumer_members,
            k.target_assignment,
            k.partition_owners,
        ),
        (retention_ms, present_ms),
    )


def describe(keys: Keys, group_id: str, *, full: int) -> Call[DescribeReply]:
    """The group, and with `full` its members."""
    k = keys.group(group_id)
    return Call(
        DESCRIBE,
        (k.group, k.members, k.clients, k.protocols, k.instances, k.assignments, k.deadlines),
        (full,),
    )


def delete(keys: Keys, group_id: str) -> Call[DeleteReply]:
    """A group without members is gone."""
    k = keys.group(group_id)
    return Call(
        DELETE,
        (
            k.group,
            k.members,
            k.clients,
            k.protocols,
            k.instances,
            k.assignments,
            k.deadlines,
            k.offsets,
            k.txn_offsets,
            k.consumer_members,
            k.target_assignment,
            k.partition_owners,
        ),
    )
