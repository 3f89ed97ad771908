"""DeleteRecords (key 21): move the start of partitions forward. Offset -1 is the high watermark."""

from korvet.wire.schema import Message, Response, i16, i32, i64, request, response


class DeleteRecordsPartition(Message):
    partition_index: i32
    offset: i64


class DeleteRecordsTopic(Message):
    name: str
    partitions: list[DeleteRecordsPartition]


@request(key=21, versions=(0, 2), flexible=2)
class DeleteRecordsRequest(Message):
    topics: list[DeleteRecordsTopic]
    timeout_ms: i32


class DeleteRecordsPartitionResult(Message):
    partition_index: i32
    low_watermark: i64
    error_code: i16 = 0


class DeleteRecordsTopicResult(Message):
    name: str
    partitions: list[DeleteRecordsPartitionResult]


@response(DeleteRecordsRequest)
class DeleteRecordsResponse(Response):
    topics: list[DeleteRecordsTopicResult]
