"""InitProducerId. Allocate a producer id and epoch.

Behaviour
- without a transactional id: a new id with epoch 0, whatever id and epoch the request has; the
  producer bumps its epoch itself (KIP-360), and log.append fences the older one
- with one: the id's next epoch, which fences earlier producers of the transactional id; their open
  transaction is aborted first, with its markers. INVALID_TRANSACTION_TIMEOUT (0 or above
  transaction.max.timeout.ms), PRODUCER_FENCED for an id or epoch that is not the newest,
  CONCURRENT_TRANSACTIONS while another request is ending the transaction
- INVALID_REQUEST for an id without an epoch, an epoch without an id, an empty transactional id;
  only -1 is none, any other negative number is an id or epoch of no producer
Versions
- v2 flexible, v3 producer id and epoch in the request, v4 PRODUCER_FENCED instead of
  INVALID_PRODUCER_EPOCH
Left out
- two-phase commit (v6)
"""

from korvet.base.errors import ErrorCode
from korvet.context import Context
from korvet.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

NONE = -1
UNUSED_ID = 2**53 - 1
"""A producer id that is never allocated."""


async def init_producer_id(
    request: InitProducerIdRequest, context: Context
) -> InitProducerIdResponse:
    if (request.producer_id == NONE) != (request.producer_epoch == NONE):
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return await _transactional(request.transactional_id, request, context)
    reply = await context.store.run(context.keys.producer_allocate())
    return InitProducerIdResponse(producer_id=reply.producer_id, producer_epoch=0)


async def _transactional(
    transactional_id: str, request: InitProducerIdRequest, context: Context
) -> InitProducerIdResponse:
    if not transactional_id:
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST)
    timeout_ms = request.transaction_timeout_ms
    if not 0 < timeout_ms <= context.settings.integer("transaction.max.timeout.ms"):
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    reply = await context.transactions.init(
        transactional_id,
        timeout_ms=timeout_ms,
        producer_id=request.producer_id if request.producer_id >= NONE else UNUSED_ID,
        producer_epoch=request.producer_epoch,
    )
    error = ErrorCode(reply.error)
    if error == ErrorCode.PRODUCER_FENCED and context.version < 4:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    if error:
        return InitProducerIdResponse(error_code=error)
    return InitProducerIdResponse(
        producer_id=reply.producer_id, producer_epoch=reply.producer_epoch
    )
