"""ShareAcknowledge (key 79): acknowledge records that a member of a share group acquired (KIP-932).

From 2 on the request may renew locks (KIP-1222), and the response has the lock's duration.
"""

from typing import Annotated

from korvet.wire.schema import (
    ErrorResponse,
    Field,
    Message,
    i8,
    i16,
    i32,
    i64,
    request,
    response,
    uuid,
)
from korvet.wire.structs import NodeEndpoint


class AcknowledgementBatch(Message):
    first_offset: i64
    last_offset: i64
    """Inclusive."""
    acknowledge_types: list[i8]
    """0 gap, 1 accept, 2 release, 3 reject, 4 renew: one for all offsets, or one for each."""


class AcknowledgePartition(Message):
    partition_index: i32
    acknowledgement_batches: list[AcknowledgementBatch]


class AcknowledgeTopic(Message):
    topic_id: uuid
    partitions: list[AcknowledgePartition]


@request(key=79, versions=(1, 2), flexible=0)
class ShareAcknowledgeRequest(Message):
    group_id: str | None = None
    member_id: str | None = ""
    share_session_epoch: i32
    """-1: close the session; else the next request of one."""
    is_renew_ack: Annotated[bool, Field(since=2)] = False
    """Acknowledgements of type 4 are in the request."""
    topics: list[AcknowledgeTopic]


class LeaderIdAndEpoch(Message):
    leader_id: i32 = 0
    leader_epoch: i32 = 0


class PartitionData(Message):
    partition_index: i32
    error_code: i16 = 0
    error_message: str | None = None
    current_leader: LeaderIdAndEpoch = LeaderIdAndEpoch()


class ShareAcknowledgeTopicResponse(Message):
    topic_id: uuid
    partitions: list[PartitionData]


@response(ShareAcknowledgeRequest)
class ShareAcknowledgeResponse(ErrorResponse):
    acquisition_lock_timeout_ms: Annotated[i32, Field(since=2)] = 0
    responses: list[ShareAcknowledgeTopicResponse] = []
    node_endpoints: list[NodeEndpoint] = []
