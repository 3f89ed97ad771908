"""EndTxn (key 26): commit or abort. From 5 on the response has the next epoch."""

from typing import Annotated

from korvet.wire.schema import Field, Message, Response, i16, i64, request, response


@request(key=26, versions=(0, 5), flexible=3)
class EndTxnRequest(Message):
    transactional_id: str
    producer_id: i64
    producer_epoch: i16
    committed: bool
    """False aborts."""


@response(EndTxnRequest)
class EndTxnResponse(Response):
    error_code: i16 = 0
    producer_id: Annotated[i64, Field(since=5)] = -1
    producer_epoch: Annotated[i16, Field(since=5)] = -1
