"""TxnOffsetCommit (key 28): commit a group's offsets when the transaction commits.

From 5 on the group joins the transaction by this request, without AddOffsetsToTxn before it. In 6
ids replace names (KIP-1319).
"""

from typing import Annotated

from korvet.wire.schema import (
    ZERO_UUID,
    Field,
    Message,
    Response,
    i16,
    i32,
    i64,
    request,
    response,
    uuid,
)
from korvet.wire.structs import PartitionError


class TxnOffsetCommitRequestPartition(Message):
    partition_index: i32
    committed_offset: i64
    committed_leader_epoch: Annotated[i32, Field(since=2)] = -1
    committed_metadata: str | None


class TxnOffsetCommitRequestTopic(Message):
    name: Annotated[str, Field(until=5)] = ""
    topic_id: Annotated[uuid, Field(since=6)] = ZERO_UUID
    partitions: list[TxnOffsetCommitRequestPartition]


@request(key=28, versions=(0, 6), flexible=3)
class TxnOffsetCommitRequest(Message):
    transactional_id: str
    group_id: str
    producer_id: i64
    producer_epoch: i16
    generation_id_or_member_epoch: Annotated[i32, Field(since=3)] = -1
    member_id: Annotated[str, Field(since=3)] = ""
    group_instance_id: Annotated[str | None, Field(since=3)] = None
    topics: list[TxnOffsetCommitRequestTopic]


class TxnOffsetCommitResponseTopic(Message):
    name: Annotated[str, Field(until=5)] = ""
    topic_id: Annotated[uuid, Field(since=6)] = ZERO_UUID
    partitions: list[PartitionError]


@response(TxnOffsetCommitRequest)
class TxnOffsetCommitResponse(Response):
    topics: list[TxnOffsetCommitResponseTopic]
