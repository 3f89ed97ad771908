"""Calls on a group's committed offsets, and on those that wait for the end of a transaction."""

from collections.abc import Iterable, Sequence

from korvet.keys import Keys
from korvet.scripts.call import Arg, Call, Reply, Script
from korvet.scripts.group.members import MemberReply


class DeleteOffsetsReply(Reply):
    """`removed` commits were there and are gone."""

    error: int
    removed: int


class DeleteTopicOffsetsReply(Reply):
    """`forgotten` committed offsets are gone."""

    error: int
    forgotten: int


class TxnCompleteReply(Reply):
    """`committed` is flat: stream key and commit of what counts now."""

    error: int
    committed: list[bytes]


class KeepReply(Reply):
    """The offsets are committed, unless `error` says why not."""

    error: int


COMMIT = Script("group.commit", MemberReply)
DELETE_OFFSETS = Script("group.delete_offsets", DeleteOffsetsReply)
DELETE_TOPIC_OFFSETS = Script("group.delete_topic_offsets", DeleteTopicOffsetsReply)
TXN_COMMIT = Script("group.txn_commit", MemberReply)
TXN_COMPLETE = Script("group.txn_complete", TxnCompleteReply)
KEEP = Script("group.keep", KeepReply)


def commit(
    keys: Keys,
    group_id: str,
    rows: Iterable[tuple[str, int, int, int, str, str]],
    *,
    member: str,
    instance: str,
    generation: int,
    is_registered: int,
    retention_ms: int,
) -> Call[MemberReply]:
    """Rows of topic, partition, offset, leader epoch, topic id and metadata are committed."""
    k = keys.group(group_id)
    return Call(
        COMMIT,
        (
            k.group,
            k.members,
            k.clients,
            k.protocols,
            k.instances,
            k.assignments,
            k.deadlines,
            k.offsets,
        ),
        (member, instance, generation, is_registered, retention_ms, *_flat(keys, rows)),
    )


def delete_offsets(
    keys: Keys, group_id: str, fields: Sequence[str], *, state: str, generation: int
) -> Call[DeleteOffsetsReply]:
    """The commits in these fields are gone."""
    k = keys.group(group_id)
    return Call(
        DELETE_OFFSETS,
        (
            k.group,
            k.members,
            k.clients,
            k.protocols,
            k.instances,
            k.assignments,
            k.deadlines,
            k.offsets,
        ),
        (state, generation, *fields),
    )


def delete_topic_offsets(
    keys: Keys, group_id: str, topic: str, partitions: int
) -> Call[DeleteTopicOffsetsReply]:
    """The group has no committed offset of the topic any more."""
    fields = [keys.partition(topic, number).stream for number in range(partitions)]
    return Call(DELETE_TOPIC_OFFSETS, (keys.group_offsets(group_id),), fields)


def txn_commit(
    keys: Keys,
    group_id: str,
    rows: Iterable[tuple[str, int, int, int, str, str]],
    *,
    member: str,
    instance: str,
    generation: int,
    is_registered: int,
    producer_id: int,
    producer_epoch: int,
    transaction: int,
) -> Call[MemberReply]:
    """The rows (as in `commit`) wait for the end of the transaction."""
    k = keys.group(group_id)
    return Call(
        TXN_COMMIT,
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
            k.partition_owners,
        ),
        (
            member,
            instance,
            generation,
            is_registered,
            producer_id,
            producer_epoch,
            transaction,
            *_flat(keys, rows),
        ),
    )


def txn_complete(
    keys: Keys,
    group_id: str,
    *,
    producer_id: int,
    producer_epoch: int,
    transaction: int,
    committed: int,
) -> Call[TxnCompleteReply]:
    """The transaction is over in the group; a second call changes nothing."""
    k = keys.group(group_id)
    return Call(
        TXN_COMPLETE,
        (k.group, k.offsets, k.txn_offsets),
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
        (k.group, k.consumer_members, k.partition_owners, k.deadlines, k.offsets),
        (member, epoch, stores, *_flat(keys, rows)),
    )


def _flat(keys: Keys, rows: Iterable[tuple[str, int, int, int, str, str]]) -> list[Arg]:
    flat: list[Arg] = []
    for topic, partition, offset, epoch, topic_id, metadata in rows:
        flat += (keys.partition(topic, partition).stream, offset, epoch, topic_id, metadata)
    return flat
