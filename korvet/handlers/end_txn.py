"""EndTxn. Commit or abort a transaction.

Behaviour
- one script call prepares the end; then the markers of all partitions and the groups' offsets are
  written, and only then the response is sent: nothing is left to do when the next transaction
  begins. If the broker dies meanwhile, another broker completes the end
- a repeated request, whose first response was lost, gets the same response
- NOT_COORDINATOR below version 5 if another transaction is open than the one that members were last
  added to on this connection: the request was delayed, and its client has gone on at another
  broker. A client that is there looks for the coordinator and repeats the request
- INVALID_REQUEST (empty id), INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, INVALID_TXN_STATE
  (nothing to end, or prepared the other way), CONCURRENT_TRANSACTIONS
Versions
- v2 PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH, v5 the next transaction has the next epoch,
  which the response returns; aborting without an open transaction is allowed
"""

from korvet.base.errors import ErrorCode
from korvet.context import Context
from korvet.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

BUMPS_SINCE = 5
UNKNOWN = -1


async def end_txn(request: EndTxnRequest, context: Context) -> EndTxnResponse:
    if not request.transactional_id:
        return EndTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    producer = (request.transactional_id, request.producer_id, request.producer_epoch)
    bump = context.version >= BUMPS_SINCE
    noted = context.session.transactions.pop(hash(producer), UNKNOWN)
    reply = await context.transactions.end(
        request.transactional_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        committed=request.committed,
        bump=bump,
        number=UNKNOWN if bump else noted,
    )
    context.services.enlisted.forget(producer)
    error = ErrorCode(reply.error)
    if error == ErrorCode.PRODUCER_FENCED and context.version < 2:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return EndTxnResponse(
        error_code=error, producer_id=reply.producer_id, producer_epoch=reply.producer_epoch
    )
