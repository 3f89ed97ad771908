"""DescribeQuorum (key 55): leader, voters and observers of the metadata log."""

from typing import Annotated

from korvet.wire.schema import (
    ZERO_UUID,
    Field,
    Message,
    i16,
    i32,
    i64,
    request,
    response,
    u16,
    uuid,
)


class PartitionData(Message):
    partition_index: i32


class TopicData(Message):
    topic_name: str
    partitions: list[PartitionData]


@request(key=55, versions=(0, 2), flexible=0)
class DescribeQuorumRequest(Message):
    topics: list[TopicData]


class ReplicaState(Message):
    replica_id: i32
    replica_directory_id: Annotated[uuid, Field(since=2)] = ZERO_UUID
    log_end_offset: i64
    last_fetch_timestamp: Annotated[i64, Field(since=1)] = -1
    last_caught_up_timestamp: Annotated[i64, Field(since=1)] = -1


class PartitionDataResponse(Message):
    partition_index: i32
    error_code: i16 = 0
    error_message: Annotated[str | None, Field(since=2)] = None
    leader_id: i32
    leader_epoch: i32
    high_watermark: i64
    current_voters: list[ReplicaState]
    observers: list[ReplicaState]


class TopicDataResponse(Message):
    topic_name: str
    partitions: list[PartitionDataResponse]


class Listener(Message):
    name: str
    host: str
    port: u16


class Node(Message):
    node_id: i32
    listeners: list[Listener]


@response(DescribeQuorumRequest)
class DescribeQuorumResponse(Message):
    error_code: i16 = 0
    error_message: Annotated[str | None, Field(since=2)] = None
    topics: list[TopicDataResponse]
    nodes: Annotated[list[Node], Field(since=2)] = []
