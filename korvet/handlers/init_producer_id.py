"""InitProducerId (key 22), versions 0-5. A producer gets the id its batches are numbered under.

Behaviour
- without a transactional id: a fresh id with epoch 0; a producer that names the id and epoch it has
  gets the next epoch of the same id, and a fresh id when the epochs are used up
- INVALID_REQUEST for an id without an epoch or an epoch without an id
Versions
- v2 flexible, v3 producer id and epoch in the request, v4 PRODUCER_FENCED may be answered
Left out
- transactional ids: TRANSACTIONAL_ID_AUTHORIZATION_FAILED, since transactions are not served yet
"""

from korvet.context import Context
from korvet.errors import ErrorCode
from korvet.scripts import producer
from korvet.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

LAST_EPOCH = 2**15 - 1


async def init_producer_id(
    request: InitProducerIdRequest, context: Context
) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        return _refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if (request.producer_id >= 0) != (request.producer_epoch >= 0):
        return _refusal(ErrorCode.INVALID_REQUEST)
    if request.producer_id >= 0 and request.producer_epoch < LAST_EPOCH - 1:
        return InitProducerIdResponse(
            error_code=ErrorCode.NONE,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch + 1,
        )
    reply = await context.store.run(producer.allocate(context.keys))
    return InitProducerIdResponse(
        error_code=ErrorCode.NONE, producer_id=reply.producer_id, producer_epoch=0
    )


def _refusal(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_epoch=-1)
