"""InitProducerId (key 22): a producer id and epoch, for idempotence alone or for transactions.

From 3 on a producer with an id and epoch may request the next epoch. Version 6 adds fields for
two-phase commit.
"""

from typing import Annotated

from korvet.wire.schema import Field, Message, Response, i16, i32, i64, request, response


@request(key=22, versions=(0, 6), flexible=2)
class InitProducerIdRequest(Message):
    transactional_id: str | None
    """Null: idempotence only."""
    transaction_timeout_ms: i32
    producer_id: Annotated[i64, Field(since=3)] = -1
    producer_epoch: Annotated[i16, Field(since=3)] = -1
    enable2_pc: Annotated[bool, Field(since=6)] = False
    keep_prepared_txn: Annotated[bool, Field(since=6)] = False


@response(InitProducerIdRequest)
class InitProducerIdResponse(Response):
    error_code: i16 = 0
    producer_id: i64 = -1
    producer_epoch: i16 = -1
    ongoing_txn_producer_id: Annotated[i64, Field(since=6)] = -1
    ongoing_txn_producer_epoch: Annotated[i16, Field(since=6)] = -1
