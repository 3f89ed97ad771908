"""Calls on a group's committed offsets, and on those that wait for the end of a transaction."""

from collections.abc import Iterable, Sequence

from korvet.keys import Keys
from korvet.scripts.call import Arg, Call, Reply, Script
from korvet.scripts.group.members import MemberReply


class ForgetReply(Reply):
    """`removed` commits were there and are gone."""

    error: int
    removed: int


class ResolveReply(Reply):
    """`committed` is flat: stream key and commit of what counts now."""

    error: int
    committed: list[bytes]


class KeepReply(Reply):
    """The offsets are committed, unless `error` says why not."""

    error: int


COMMIT = Script("group.commit", MemberReply)
FORGET = Script("group.forget", ForgetReply)
PEND = Script("group.pend", MemberReply)
RESOLVE = Script("group.resolve", ResolveReply)
KEEP = Script("group.keep", KeepReply)


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
            k.offsets,
            k.waiting,
            k.consumers,
            k.holders,
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


def keep(
    keys: Keys,
    group_id: str,
    rows: Iterable[tuple[str, int, int, int, str, str]],
    *,
    member: str,
    epoch: int,
    stores: int,
) -> Call[KeepReply]:
    """The rows (as in `commit`) are, or could be, committed by a member of the newer protocol."""
    k = keys.group(group_id)
    return Call(
        KEEP,
        (k.group, k.consumers, k.holders, k.deadlines, k.offsets),
        (member, epoch, stores, *_flat(keys, rows)),
    )


def _flat(keys: Keys, rows: Iterable[tuple[str, int, int, int, str, str]]) -> list[Arg]:
    flat: list[Arg] = []
    for topic, partition, offset, epoch, topic_id, metadata in rows:
        flat += (keys.partition(topic, partition).stream, offset, epoch, topic_id, metadata)
    return flat
