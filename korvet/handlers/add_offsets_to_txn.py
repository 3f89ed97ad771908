"""AddOffsetsToTxn. Add a group's offsets to a transaction.

Behaviour
- opens the transaction if none is open
- INVALID_REQUEST for an empty transactional id; INVALID_GROUP_ID never, as in Kafka;
  INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS
Versions
- v2 PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH
"""

from korvet.base.errors import ErrorCode
from korvet.context import Context
from korvet.transactions.members import group_member
from korvet.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse


async def add_offsets_to_txn(
    request: AddOffsetsToTxnRequest, context: Context
) -> AddOffsetsToTxnResponse:
    if not request.transactional_id:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    who = (request.transactional_id, request.producer_id, request.producer_epoch)
    reply = await context.transactions.add_members(*who, [group_member(request.group_id)])
    error = ErrorCode(reply.error)
    if not error:
        context.note_transaction(who, reply.transaction)
    if error == ErrorCode.PRODUCER_FENCED and context.version < 2:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return AddOffsetsToTxnResponse(error_code=error)
