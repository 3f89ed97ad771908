"""DescribeTopicPartitions (key 75): as Metadata, in pages and with the eligible leaders."""

from korvet.wire.schema import ZERO_UUID, Message, Response, i16, i32, request, response, uuid


class TopicRequest(Message):
    name: str


class Cursor(Message):
    topic_name: str
    partition_index: i32


@request(key=75, versions=(0, 0), flexible=0)
class DescribeTopicPartitionsRequest(Message):
    topics: list[TopicRequest]
    response_partition_limit: i32 = 2000
    cursor: Cursor | None = None
    """Where the last page ended; null for the first."""


class DescribeTopicPartitionsResponsePartition(Message):
    error_code: i16 = 0
    partition_index: i32
    leader_id: i32
    leader_epoch: i32 = -1
    replica_nodes: list[i32]
    isr_nodes: list[i32]
    eligible_leader_replicas: list[i32] | None = []
    """Never null: Java's client fails on it."""
    last_known_elr: list[i32] | None = []
    """Never null: Java's client fails on it."""
    offline_replicas: list[i32] = []


class DescribeTopicPartitionsResponseTopic(Message):
    error_code: i16 = 0
    name: str | None
    topic_id: uuid = ZERO_UUID
    is_internal: bool = False
    partitions: list[DescribeTopicPartitionsResponsePartition] = []
    topic_authorized_operations: i32 = -2147483648


@response(DescribeTopicPartitionsRequest)
class DescribeTopicPartitionsResponse(Response):
    topics: list[DescribeTopicPartitionsResponseTopic]
    next_cursor: Cursor | None = None
    """Null: there is no next page."""
