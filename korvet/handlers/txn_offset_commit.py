"""TxnOffsetCommit. Store offsets that are committed with a transaction.

Behaviour
- per partition: UNKNOWN_TOPIC_OR_PARTITION (UNKNOWN_TOPIC_ID from 6 on)
- for all other partitions together: the transaction is checked first (INVALID_PRODUCER_ID_MAPPING,
  INVALID_PRODUCER_EPOCH, CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE, from v4 on
  TRANSACTION_ABORTABLE, if the group is not part of it), then the group, in the script that stores
  the offsets, if the request has a member: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID,
  ILLEGAL_GENERATION (from 6 on GROUP_ID_NOT_FOUND for a generation of a group that does not exist,
  and STALE_MEMBER_EPOCH for a member of a consumer group, KIP-848)
- per partition that the group accepts: OFFSET_METADATA_TOO_LARGE
- the group's script refuses offsets of a fenced producer and of a transaction that has ended
Versions
- v2 leader epochs, v3 member, generation and instance, v5 the group joins the transaction by this
  request, without AddOffsetsToTxn before it (KIP-890), v6 topic ids (KIP-1319)
"""

from collections.abc import Sequence

from korvet.base.errors import ErrorCode
from korvet.context import Context
from korvet.groups.offset_commit import Row, commit_results, validate_commit
from korvet.scripts.call import Call
from korvet.scripts.calls.group import CommitReply
from korvet.transactions.members import group_member
from korvet.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponseTopic,
)

ABORTABLE_SINCE = 4
IMPLICIT_SINCE = 5
BY_ID_SINCE = 6
"""The first version with topic ids, and with the error codes of groups."""
_OLDER_ERRORS = {
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.STALE_MEMBER_EPOCH: ErrorCode.ILLEGAL_GENERATION,
}


async def txn_offset_commit(
    request: TxnOffsetCommitRequest, context: Context
) -> TxnOffsetCommitResponse:
    by_id = context.version >= BY_ID_SINCE
    commit = await validate_commit(
        request.topics,
        context.topics,
        max_metadata=context.settings.integer("offset.metadata.max.bytes"),
        by_id=by_id,
    )
    group_error = ErrorCode.NONE
    if commit.needs_group:
        group_error = await _store(request, commit.rows, context)
    if not by_id:
        group_error = _OLDER_ERRORS.get(group_error, group_error)
    topics = commit_results(request.topics, commit, group_error, TxnOffsetCommitResponseTopic)
    return TxnOffsetCommitResponse(topics=topics)


async def _store(request: TxnOffsetCommitRequest, rows: list[Row], context: Context) -> ErrorCode:
    if not request.transactional_id:
        return ErrorCode.INVALID_REQUEST
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    transaction = (request.transactional_id, request.producer_id, request.producer_epoch)
    member = group_member(request.group_id)
    if context.version >= IMPLICIT_SINCE:
        enlisted = await context.transactions.add_members(*transaction, [member])
    else:
        enlisted = await context.transactions.verify_member(*transaction, member)
    if enlisted.error == ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if enlisted.error == ErrorCode.INVALID_TXN_STATE and context.version >= ABORTABLE_SINCE:
        return ErrorCode.TRANSACTION_ABORTABLE
    if enlisted.error:
        return ErrorCode(enlisted.error)

    def make(some: Sequence[Row], is_registered: int) -> Call[CommitReply]:
        return context.keys.group(request.group_id).txn_commit(
            context.keys.commit_rows(some),
            member=request.member_id,
            instance=request.group_instance_id or "",
            generation=request.generation_id_or_member_epoch,
            is_registered=is_registered,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            transaction=enlisted.transaction,
        )

    key = context.keys.group(request.group_id).group
    run = context.store.run_of(key)
    replies = await context.services.groups.run_rows(request.group_id, rows, make)
    error = ErrorCode(replies[-1].error)
    if error == ErrorCode.NONE:
        await context.store.until_durable(key, run)
    return error
