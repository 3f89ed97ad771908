"""ShareFetch (key 78): acquire records for a member of a share group (KIP-932).

A request may also acknowledge records of earlier responses. From 2 on the client chooses how
strictly `max_records` limits the records (KIP-1206), and may renew locks (KIP-1222).
"""

from typing import Annotated

from korvet.wire.messages.share_acknowledge import AcknowledgeTopic, LeaderIdAndEpoch
from korvet.wire.schema import (
    ErrorResponse,
    Field,
    Message,
    batch_parts,
    i8,
    i16,
    i32,
    i64,
    request,
    response,
    uuid,
)
from korvet.wire.structs import NodeEndpoint


class ForgottenTopic(Message):
    topic_id: uuid
    partitions: list[i32]


@request(key=78, versions=(1, 2), flexible=0)
class ShareFetchRequest(Message):
    group_id: str | None = None
    member_id: str | None = ""
    share_session_epoch: i32
    """0: open a session; -1: close it; else the next request of one."""
    max_wait_ms: i32
    min_bytes: i32
    max_bytes: i32 = 2147483647
    max_records: i32
    """Records to acquire at most; more in acquire mode 0, to the end of a batch."""
    batch_size: i32
    """Records at most in each of the acquired ranges, the units of acknowledgement."""
    share_acquire_mode: Annotated[i8, Field(since=2)] = 0
    """0: whole batches; 1: never more than `max_records`."""
    is_renew_ack: Annotated[bool, Field(since=2)] = False
    """Acknowledgements of type 4 are in the request; it then fetches nothing."""
    topics: list[AcknowledgeTopic]
    forgotten_topics_data: list[ForgottenTopic] = []
    """Partitions to drop from the session."""


class AcquiredRecords(Message):
    first_offset: i64
    last_offset: i64
    """Inclusive."""
    delivery_count: i16


class PartitionData(Message):
    partition_index: i32
    error_code: i16 = 0
    """The error of the fetch."""
    error_message: str | None = None
    acknowledge_error_code: i16 = 0
    """The error of the acknowledgements."""
    acknowledge_error_message: str | None = None
    current_leader: LeaderIdAndEpoch = LeaderIdAndEpoch()
    records: batch_parts
    acquired_records: list[AcquiredRecords] = []


class ShareFetchableTopicResponse(Message):
    topic_id: uuid
    partitions: list[PartitionData]


@response(ShareFetchRequest)
class ShareFetchResponse(ErrorResponse):
    acquisition_lock_timeout_ms: i32 = 0
    responses: list[ShareFetchableTopicResponse] = []
    node_endpoints: list[NodeEndpoint] = []
