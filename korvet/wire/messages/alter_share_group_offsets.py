"""AlterShareGroupOffsets (key 91): move the start offsets of an empty share group (KIP-932)."""

from korvet.wire.schema import ErrorResponse, Message, i32, i64, request, response, uuid
from korvet.wire.structs import PartitionErrorMessage


class AlterShareGroupOffsetsRequestPartition(Message):
    partition_index: i32
    start_offset: i64


class AlterShareGroupOffsetsRequestTopic(Message):
    topic_name: str
    partitions: list[AlterShareGroupOffsetsRequestPartition]


@request(key=91, versions=(0, 0), flexible=0)
class AlterShareGroupOffsetsRequest(Message):
    group_id: str
    topics: list[AlterShareGroupOffsetsRequestTopic]


class AlterShareGroupOffsetsResponseTopic(Message):
    topic_name: str
    topic_id: uuid
    partitions: list[PartitionErrorMessage]


@response(AlterShareGroupOffsetsRequest)
class AlterShareGroupOffsetsResponse(ErrorResponse):
    responses: list[AlterShareGroupOffsetsResponseTopic] = []
