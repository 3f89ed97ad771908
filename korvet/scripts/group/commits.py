"""Calls on a group's committed offsets and its pending ones (TxnOffsetCommit)."""

from collections.abc import Iterable, Sequence
from typing import TypedDict, Unpack

from korvet.keys import Keys
from korvet.scripts.call import Arg, Call, ErrorReply, Reply, Script, in_order
from korvet.scripts.group.members import MemberReply


class DeleteOffsetsReply(Reply):
    """`removed`: the number of deleted commits."""

    error: int
    removed: int


class DeleteTopicOffsetsReply(Reply):
    """`deleted`: the number of deleted commits."""

    error: int
    deleted: int


class TxnCompleteReply(Reply):
    """`committed` is flat: stream key and commit of each offset that was committed.

    `more`: pending commits are left, the call is to be repeated.
    """

    error: int
    committed: list[bytes]
    more: int


COMMIT = Script("group.commit", MemberReply)
DELETE_OFFSETS = Script("group.delete_offsets", DeleteOffsetsReply)
DELETE_TOPIC_OFFSETS = Script("group.delete_topic_offsets", DeleteTopicOffsetsReply)
TXN_COMMIT = Script("group.txn_commit", MemberReply)
TXN_COMPLETE = Script("group.txn_complete", TxnCompleteReply)
CHECK_EPOCH = Script("group.check_epoch", ErrorReply)


class CommitArgs(TypedDict):
    """Arguments of group.commit, in order."""

    member: str
    instance: str
    generation: int
    allow_member_epoch: int
    is_registered: int
    retention_ms: int


def commit(
    keys: Keys,
    group_id: str,
    rows: Iterable[tuple[str, int, int, int, str, str]],
    **args: Unpack[CommitArgs],
) -> Call[MemberReply]:
    """Commit rows of topic, partition, offset, leader epoch, topic id and metadata."""
    k = keys.group(group_id)
    return Call(
        COMMIT,
        (*k.classic, k.offsets, k.consumer_members, k.partition_owners),
        (*in_order(CommitArgs, args), *_flat(keys, rows)),
    )


def delete_offsets(
    keys: Keys, group_id: str, fields: Sequence[str], *, state: str, generation: int
) -> Call[DeleteOffsetsReply]:
    """Delete the commits in these fields, if the group still has that state and generation."""
    k = keys.group(group_id)
    return Call(DELETE_OFFSETS, (*k.classic, k.offsets), (state, generation, *fields))


def delete_topic_offsets(
    keys: Keys, group_id: str, *, prefix: str, partitions: int
) -> Call[DeleteTopicOffsetsReply]:
    """Delete the group's committed offsets in fields of that prefix: those of a topic."""
    offsets = keys.group_offsets(group_id)
    return Call(DELETE_TOPIC_OFFSETS, (offsets,), (prefix, partitions))


class TxnCommitArgs(TypedDict):
    """Arguments of group.txn_commit, in order."""

    member: str
    instance: str
    generation: int
    is_registered: int
    producer_id: int
    producer_epoch: int
    transaction: int


def txn_commit(
    keys: Keys,
    group_id: str,
    rows: Iterable[tuple[str, int, int, int, str, str]],
    **args: Unpack[TxnCommitArgs],
) -> Call[MemberReply]:
    """Store the rows (as in `commit`) until the transaction ends."""
    k = keys.group(group_id)
    return Call(
        TXN_COMMIT,
        (
            *k.classic,
            k.offsets,
            k.txn_offsets,
            k.txn_pending,
            k.consumer_members,
            k.partition_owners,
        ),
        (*in_order(TxnCommitArgs, args), *_flat(keys, rows)),
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
    """Commit or discard a step of the transaction's pending offsets."""
    k = keys.group(group_id)
    return Call(
        TXN_COMPLETE,
        (k.group, k.offsets, k.txn_offsets, k.txn_pending),
        (producer_id, producer_epoch, transaction, committed),
    )


def check_epoch(keys: Keys, group_id: str, *, member: str, epoch: int) -> Call[ErrorReply]:
    """Check the epoch of a KIP-848 member that fetches offsets."""
    k = keys.group(group_id)
    return Call(CHECK_EPOCH, (k.group, k.consumer_members, k.deadlines), (member, epoch))


def _flat(keys: Keys, rows: Iterable[tuple[str, int, int, int, str, str]]) -> list[Arg]:
    flat: list[Arg] = []
    for topic, partition, offset, epoch, topic_id, metadata in rows:
        flat += (keys.partition(topic, partition).stream, offset, epoch, topic_id, metadata)
    return flat
