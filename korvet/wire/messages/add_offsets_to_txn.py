"""AddOffsetsToTxn (key 25): add offsets of a group to the transaction."""

from korvet.wire.schema import Message, Response, i16, i64, message


@message(key=25, versions=(0, 4), flexible=3, request=True)
class AddOffsetsToTxnRequest(Message):
    transactional_id: str
    producer_id: i64
    producer_epoch: i16
    group_id: str


@message(key=25, versions=(0, 4), flexible=3, request=False)
class AddOffsetsToTxnResponse(Response):
    error_code: i16 = 0
