"""AddOffsetsToTxn (key 25): add offsets of a group to the transaction."""

from korvet.wire.schema import Message, Response, i16, i64, request, response


@request(key=25, versions=(0, 4), flexible=3)
class AddOffsetsToTxnRequest(Message):
    transactional_id: str
    producer_id: i64
    producer_epoch: i16
    group_id: str


@response(AddOffsetsToTxnRequest)
class AddOffsetsToTxnResponse(Response):
    error_code: i16 = 0
