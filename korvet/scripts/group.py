"""The mirror of lua/group: calls on one classic group, and on the registry of groups.

Member ids, instances and protocol names are bytes in Redis and text here; an empty instance or
member id stands for none. Times are ms.
"""

from collections.abc import Iterable, Sequence

from korvet.keys import Keys, encode_group
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


class ForgetReply(Reply):
    """`removed` commits were there and are gone."""

    error: int
    removed: int


class RegisterReply(Reply):
    """`version` is the group's mark."""

    error: int
    version: int


class UnregisterReply(Reply):
    """`removed` is 1 when the group was still there under that mark."""

    error: int
    removed: int


class ResolveReply(Reply):
    """`committed` is flat: stream key and commit of what counts now."""

    error: int
    committed: list[bytes]


class ConsumeReply(Reply):
    """`ask` 1: call again with rows for these topics; `told` 1: `assignment` is to be told."""

    error: int
    epoch: int
    told: int
    assignment: list[bytes]
    ask: int
    names: list[bytes]
    regexes: list[bytes]


class KeepReply(Reply):
    """The offsets are committed, unless `error` says why not."""

    error: int


class ConsumersReply(Reply):
    """`members` is flat, ten cells each, as lua/group/consumers.lua lists them."""

    error: int
    state: bytes
    epoch: int
    assignor: bytes
    members: list[bytes]


class ScheduleReply(Reply):
    """The group will be looked at."""

    error: int


class ClaimReply(Reply):
    """The caller's groups, under the moment `held_until`."""

    error: int
    groups: list[bytes]
    held_until: int


class SettleReply(Reply):
    """`settled` is 0 when the group was scheduled meanwhile."""

    error: int
    settled: int


JOIN = Script("group.join", JoinReply)
JOINED = Script("group.joined", JoinReply)
SYNC = Script("group.sync", SyncReply)
HEARTBEAT = Script("group.heartbeat", MemberReply)
LEAVE = Script("group.leave", LeaveReply)
COMMIT = Script("group.commit", MemberReply)
TICK = Script("group.tick", TickReply)
DESCRIBE = Script("group.describe", DescribeReply)
DELETE = Script("group.delete", DeleteReply)
FORGET = Script("group.forget", ForgetReply)
PEND = Script("group.pend", MemberReply)
RESOLVE = Script("group.resolve", ResolveReply)
CONSUME = Script("group.consume", ConsumeReply)
KEEP = Script("group.keep", KeepReply)
CONSUMERS = Script("group.consumers", ConsumersReply)
REGISTER = Script("group.register", RegisterReply)
UNREGISTER = Script("group.unregister", UnregisterReply)
SCHEDULE = Script("group.schedule", ScheduleReply)
CLAIM = Script("group.claim", ClaimReply)
SETTLE = Script("group.settle", SettleReply)


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
    known_first: int,
    skip: int,
    registered: int,
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
            k.profiles,
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
            known_first,
            skip,
            registered,
            delay_ms,
            max_size,
            *offered,
        ),
    )


def joined(keys: Keys, group_id: str, *, member: str, instance: str) -> Call[JoinReply]:
    """Whether a member that waits has its place now."""
    k = keys.group(group_id)
    return Call(
        JOINED,
        (k.group, k.members, k.profiles, k.protocols, k.instances, k.assignments, k.deadlines),
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
        (k.group, k.members, k.profiles, k.protocols, k.instances, k.assignments, k.deadlines),
        (member, instance, generation, protocol_type, protocol, *parts),
    )


def heartbeat(
    keys: Keys, group_id: str, *, member: str, instance: str, generation: int
) -> Call[MemberReply]:
    """One member says it is alive."""
    k = keys.group(group_id)
    return Call(
        HEARTBEAT,
        (k.group, k.members, k.profiles, k.protocols, k.instances, k.assignments, k.deadlines),
        (member, instance, generation),
    )


def leave(keys: Keys, group_id: str, leavers: Iterable[tuple[str, str]]) -> Call[LeaveReply]:
    """Members, each by its id and instance, are out of the group."""
    k = keys.group(group_id)
    flat: list[Arg] = []
    for member, instance in leavers:
        flat += (member, instance)
    return Call(
        LEAVE,
        (k.group, k.members, k.profiles, k.protocols, k.instances, k.assignments, k.deadlines),
        flat,
    )


def commit(
    keys: Keys,
    group_id: str,
    rows: Iterable[tuple[str, int, int, int, str, str]],
    *,
    member: str,
    instance: str,
    generation: int,
    registered: int,
    retention_ms: int,
) -> Call[MemberReply]:
    """Rows of topic, partition, offset, leader epoch, topic id and metadata are committed."""
    k = keys.group(group_id)
    return Call(
        COMMIT,
        (
            k.group,
            k.members,
            k.profiles,
            k.protocols,
            k.instances,
            k.assignments,
            k.deadlines,
            k.offsets,
        ),
        (member, instance, generation, registered, retention_ms, *_flat(keys, rows)),
    )


def tick(keys: Keys, group_id: str, *, retention_ms: int) -> Call[TickReply]:
    """What is due in the group happens."""
    k = keys.group(group_id)
    return Call(
        TICK,
        (
            k.group,
            k.members,
            k.profiles,
            k.protocols,
            k.instances,
            k.assignments,
            k.deadlines,
            k.offsets,
        ),
        (retention_ms,),
    )


def describe(keys: Keys, group_id: str, *, full: int) -> Call[DescribeReply]:
    """The group, and with `full` its members."""
    k = keys.group(group_id)
    return Call(
        DESCRIBE,
        (k.group, k.members, k.profiles, k.protocols, k.instances, k.assignments, k.deadlines),
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
            k.profiles,
            k.protocols,
            k.instances,
            k.assignments,
            k.deadlines,
            k.offsets,
        ),
    )


def forget(
    keys: Keys, group_id: str, fields: Sequence[str], *, state: str, generation: int
) -> Call[ForgetReply]:
    """The commits in these fields are gone."""
    k = keys.group(group_id)
    return Call(
        FORGET,
        (
            k.group,
            k.members,
            k.profiles,
            k.protocols,
            k.instances,
            k.assignments,
            k.deadlines,
            k.offsets,
        ),
        (state, generation, *fields),
    )


def pend(
    keys: Keys,
    group_id: str,
    rows: Iterable[tuple[str, int, int, int, str, str]],
    *,
    member: str,
    instance: str,
    generation: int,
    registered: int,
    producer_id: int,
    producer_epoch: int,
    transaction: int,
) -> Call[MemberReply]:
    """The rows (as in `commit`) wait for the end of the transaction."""
    k = keys.group(group_id)
    return Call(
        PEND,
        (
            k.group,
            k.members,
            k.profiles,
            k.protocols,
            k.instances,
            k.assignments,
            k.deadlines,
            k.waiting,
        ),
        (
            member,
            instance,
            generation,
            registered,
            producer_id,
            producer_epoch,
            transaction,
            *_flat(keys, rows),
        ),
    )


def resolve(
    keys: Keys,
    group_id: str,
    *,
    producer_id: int,
    producer_epoch: int,
    transaction: int,
    committed: int,
) -> Call[ResolveReply]:
    """The transaction is over in the group; a second call changes nothing."""
    k = keys.group(group_id)
    return Call(
        RESOLVE,
        (k.group, k.offsets, k.waiting),
        (producer_id, producer_epoch, transaction, committed),
    )


def consume(
    keys: Keys,
    group_id: str,
    *,
    member: str,
    epoch: int,
    instance: str,
    rack: str,
    client_id: str,
    client_host: str,
    session_ms: int,
    rebalance_ms: int,
    assignor: str,
    max_size: int,
    registered: int,
    subscribes: int,
    names: bytes,
    regex: str,
    owns: int,
    owned: bytes,
    version: bytes,
    known: int,
    rows: Iterable[tuple[str, str, str]],
) -> Call[ConsumeReply]:
    """A member of the newer protocol is alive. Rows are kind, key and value."""
    k = keys.group(group_id)
    flat = [cell for row in rows for cell in row]
    return Call(
        CONSUME,
        (k.group, k.consumers, k.sessions),
        (
            member,
            epoch,
            instance,
            rack,
            client_id,
            client_host,
            session_ms,
            rebalance_ms,
            assignor,
            max_size,
            registered,
            subscribes,
            names,
            regex,
            owns,
            owned,
            version,
            known,
            *flat,
        ),
    )


def keep(
    keys: Keys,
    group_id: str,
    rows: Iterable[tuple[str, int, int, int, str, str]],
    *,
    member: str,
    epoch: int,
) -> Call[KeepReply]:
    """The rows (as in `commit`) are committed by a member of the newer protocol."""
    k = keys.group(group_id)
    return Call(KEEP, (k.group, k.consumers, k.offsets), (member, epoch, *_flat(keys, rows)))


def consumers(keys: Keys, group_id: str) -> Call[ConsumersReply]:
    """A group of the newer protocol with its members."""
    k = keys.group(group_id)
    return Call(CONSUMERS, (k.group, k.consumers))


def register(keys: Keys, *, group: str) -> Call[RegisterReply]:
    """The group is known to whoever deletes topics."""
    return Call(REGISTER, (keys.groups(),), (encode_group(group),))


def unregister(keys: Keys, *, group: str, mark: bytes) -> Call[UnregisterReply]:
    """The group is known no more."""
    return Call(UNREGISTER, (keys.groups(),), (encode_group(group), mark))


def schedule(keys: Keys, *, group: str, after_ms: int) -> Call[ScheduleReply]:
    """The group is looked at in `after_ms` at the latest."""
    return Call(SCHEDULE, (keys.groups_due(),), (encode_group(group), after_ms))


def claim(keys: Keys, *, hold_ms: int, limit: int) -> Call[ClaimReply]:
    """Groups whose moment has passed are the caller's for a while."""
    return Call(CLAIM, (keys.groups_due(),), (hold_ms, limit))


def settle(keys: Keys, *, group: str, held_until: int, after_ms: int) -> Call[SettleReply]:
    """A claimed group has its next moment, or none."""
    return Call(SETTLE, (keys.groups_due(),), (encode_group(group), held_until, after_ms))


def _flat(keys: Keys, rows: Iterable[tuple[str, int, int, int, str, str]]) -> list[Arg]:
    flat: list[Arg] = []
    for topic, partition, offset, epoch, topic_id, metadata in rows:
        flat += (keys.partition(topic, partition).stream, offset, epoch, topic_id, metadata)
    return flat
