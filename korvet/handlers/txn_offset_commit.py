"""TxnOffsetCommit (key 28), versions 0-6. A group's offsets wait for the commit of a transaction.

Behaviour
- per partition: UNKNOWN_TOPIC_OR_PARTITION (UNKNOWN_TOPIC_ID from 6 on)
- for the rest together: the transaction is asked first (INVALID_PRODUCER_ID_MAPPING,
  INVALID_PRODUCER_EPOCH, CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE, from v4 on
  TRANSACTION_ABORTABLE, when the group does not take part in it), then the group, in the script
  that keeps the offsets, when a member is named: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID,
  ILLEGAL_GENERATION (from 6 on GROUP_ID_NOT_FOUND for a generation of a group that does not exist,
  and STALE_MEMBER_EPOCH for a member of the newer protocol)
- per partition of a commit that would stand: OFFSET_METADATA_TOO_LARGE
- a zombie's offsets, or those of a transaction that has ended, the group's own script refuses
Versions
- v2 leader epochs, v3 member, generation and instance, v5 the group joins the transaction by this
  request, without AddOffsetsToTxn before it (KIP-890), v6 topic ids (KIP-1319)
"""

from korvet.context import Context
from korvet.errors import ErrorCode
from korvet.groups.commit_validation import plan, told
from korvet.groups.offset_commit import Row
from korvet.scripts import group as scripts
from korvet.scripts.call import Call
from korvet.scripts.group import MemberReply
from korvet.transactions.coordinator import member_group
from korvet.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

ABORTABLE_SINCE = 4
IMPLICIT_SINCE = 5
BY_ID = 6
"""From this version on topics have ids, and clients know what is said of groups."""
_OLDER_WORDS = {
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.STALE_MEMBER_EPOCH: ErrorCode.ILLEGAL_GENERATION,
}


async def txn_offset_commit(
    request: TxnOffsetCommitRequest, context: Context
) -> TxnOffsetCommitResponse:
    by_id = context.version >= BY_ID
    planned = await plan(request.topics, context, by_id=by_id)
    verdict = await _pend(request, planned.rows, context) if planned.asks else ErrorCode.NONE
    if not by_id:
        verdict = _OLDER_WORDS.get(verdict, verdict)
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=asked.name,
                topic_id=asked.topic_id,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=part.partition_index, error_code=told(fate, verdict)
                    )
                    for part, fate in zip(asked.partitions, fates, strict=True)
                ],
            )
            for asked, fates in zip(request.topics, planned.fates, strict=True)
        ]
    )


async def _pend(request: TxnOffsetCommitRequest, rows: list[Row], context: Context) -> ErrorCode:
    if not request.transactional_id:
        return ErrorCode.INVALID_REQUEST
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    who = (request.transactional_id, request.producer_id, request.producer_epoch)
    member = member_group(request.group_id)
    if context.version >= IMPLICIT_SINCE:
        taken = await context.transactions.add(*who, [member])
    else:
        taken = await context.transactions.verify(*who, member)
    if taken.error == ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if taken.error == ErrorCode.INVALID_TXN_STATE and context.version >= ABORTABLE_SINCE:
        return ErrorCode.TRANSACTION_ABORTABLE
    if taken.error:
        return ErrorCode(taken.error)

    def make(registered: int) -> Call[MemberReply]:
        return scripts.txn_commit(
            context.keys,
            request.group_id,
            rows,
            member=request.member_id,
            instance=request.group_instance_id or "",
            generation=request.generation_id_or_member_epoch,
            is_registered=registered,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            transaction=taken.transaction,
        )

    return ErrorCode((await context.services.groups.run(request.group_id, make)).error)
