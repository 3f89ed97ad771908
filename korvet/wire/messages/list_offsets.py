"""ListOffsets (key 2): the offset that belongs to a timestamp, or to one of its special values.

-1 is the end and -2 the start in every version; -3 (the record of the largest timestamp) is from 7,
-4 (the local log start) from 8, -5 (the end of the tiered records) from 9, -6 (the start of the
records to be tiered) from 11. The response of version 0 has a list of segment starts.
"""

from typing import Annotated

from korvet.wire.schema import Field, Message, i8, i16, i32, i64, request, response


class ListOffsetsPartition(Message):
    partition_index: i32
    current_leader_epoch: Annotated[i32, Field(since=4)] = -1
    timestamp: i64
    max_num_offsets: Annotated[i32, Field(until=0)] = 1
    """Max segment starts to list."""


class ListOffsetsTopic(Message):
    name: str
    partitions: list[ListOffsetsPartition]


@request(key=2, versions=(0, 11), flexible=6)
class ListOffsetsRequest(Message):
    replica_id: i32
    isolation_level: Annotated[i8, Field(since=2)] = 0
    topics: list[ListOffsetsTopic]
    timeout_ms: Annotated[i32, Field(since=10)] = 0


class ListOffsetsPartitionResponse(Message):
    partition_index: i32
    error_code: i16 = 0
    old_style_offsets: Annotated[list[i64], Field(until=0)] = []
    timestamp: Annotated[i64, Field(since=1)] = -1
    offset: Annotated[i64, Field(since=1)] = -1
    leader_epoch: Annotated[i32, Field(since=4)] = -1


class ListOffsetsTopicResponse(Message):
    name: str
    partitions: list[ListOffsetsPartitionResponse]


@response(ListOffsetsRequest)
class ListOffsetsResponse(Message):
    throttle_time_ms: Annotated[i32, Field(since=2)] = 0
    topics: list[ListOffsetsTopicResponse]
