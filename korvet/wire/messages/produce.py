"""Produce (key 0): append record batches to partitions.

Up to 2 the records are the old message sets (magic 0 or 1), from 3 on one batch of magic 2 per
partition, from 7 on zstd is allowed. Topics have names up to 12 and ids from 13 on.
With acks = 0 there is no response at all.
"""

from typing import Annotated

from korvet.wire.schema import (
    ZERO_UUID,
    Field,
    Message,
    batches,
    i16,
    i32,
    i64,
    request,
    response,
    uuid,
)
from korvet.wire.structs import LeaderIdAndEpoch, NodeEndpoint


class PartitionProduceData(Message):
    index: i32
    records: batches | None


class TopicProduceData(Message):
    name: Annotated[str, Field(until=12)] = ""
    topic_id: Annotated[uuid, Field(since=13)] = ZERO_UUID
    partition_data: list[PartitionProduceData]


@request(key=0, versions=(0, 13), flexible=9)
class ProduceRequest(Message):
    transactional_id: Annotated[str | None, Field(since=3)] = None
    acks: i16
    """0: no response; 1: written here; -1: written by all in-sync replicas."""
    timeout_ms: i32
    topic_data: list[TopicProduceData]


class BatchIndexAndErrorMessage(Message):
    batch_index: i32
    batch_index_error_message: str | None = None


class PartitionProduceResponse(Message):
    index: i32
    error_code: i16 = 0
    base_offset: i64
    log_append_time_ms: Annotated[i64, Field(since=2)] = -1
    """-1 unless the topic uses the time of the append."""
    log_start_offset: Annotated[i64, Field(since=5)] = -1
    record_errors: Annotated[list[BatchIndexAndErrorMessage], Field(since=8)] = []
    """The records for which the broker rejected the batch."""
    error_message: Annotated[str | None, Field(since=8)] = None
    current_leader: Annotated[LeaderIdAndEpoch, Field(since=10, tag=0)] = LeaderIdAndEpoch()
    """With NOT_LEADER_OR_FOLLOWER: the current leader; its address is in `node_endpoints`."""


class TopicProduceResponse(Message):
    name: Annotated[str, Field(until=12)] = ""
    topic_id: Annotated[uuid, Field(since=13)] = ZERO_UUID
    partition_responses: list[PartitionProduceResponse]


@response(ProduceRequest)
class ProduceResponse(Message):
    responses: list[TopicProduceResponse]
    throttle_time_ms: Annotated[i32, Field(since=1)] = 0
    node_endpoints: Annotated[list[NodeEndpoint], Field(since=10, tag=0)] = []
