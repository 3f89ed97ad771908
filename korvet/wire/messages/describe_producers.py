"""DescribeProducers (key 61): the producers a partition has state for."""

from korvet.wire.schema import Message, Response, i16, i32, i64, request, response
from korvet.wire.structs import PartitionIndexes


@request(key=61, versions=(0, 0), flexible=0)
class DescribeProducersRequest(Message):
    topics: list[PartitionIndexes]


class ProducerState(Message):
    producer_id: i64
    producer_epoch: i32
    last_sequence: i32 = -1
    last_timestamp: i64 = -1
    coordinator_epoch: i32
    current_txn_start_offset: i64 = -1


class PartitionResponse(Message):
    partition_index: i32
    error_code: i16 = 0
    error_message: str | None = None
    active_producers: list[ProducerState] = []


class TopicResponse(Message):
    name: str
    partitions: list[PartitionResponse]


@response(DescribeProducersRequest)
class DescribeProducersResponse(Response):
    topics: list[TopicResponse]
