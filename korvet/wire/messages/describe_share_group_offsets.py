"""DescribeShareGroupOffsets (key 90): the start offsets of share groups (KIP-932).

From 1 on with the lag (KIP-1226).
"""

from typing import Annotated

from korvet.wire.schema import Field, Message, Response, i16, i32, i64, request, response, uuid


class DescribeShareGroupOffsetsRequestTopic(Message):
    topic_name: str
    partitions: list[i32]


class DescribeShareGroupOffsetsRequestGroup(Message):
    group_id: str
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None
    """Null: all topics of the group."""


@request(key=90, versions=(0, 1), flexible=0)
class DescribeShareGroupOffsetsRequest(Message):
    groups: list[DescribeShareGroupOffsetsRequestGroup]


class DescribeShareGroupOffsetsResponsePartition(Message):
    partition_index: i32
    start_offset: i64
    """The share-partition start offset; -1: none yet."""
    leader_epoch: i32 = 0
    lag: Annotated[i64, Field(since=1)] = -1
    """Records from the start offset on that are not finished; -1: unknown."""
    error_code: i16 = 0
    error_message: str | None = None


class DescribeShareGroupOffsetsResponseTopic(Message):
    topic_name: str
    topic_id: uuid
    partitions: list[DescribeShareGroupOffsetsResponsePartition]


class DescribeShareGroupOffsetsResponseGroup(Message):
    group_id: str
    topics: list[DescribeShareGroupOffsetsResponseTopic] = []
    error_code: i16 = 0
    error_message: str | None = None


@response(DescribeShareGroupOffsetsRequest)
class DescribeShareGroupOffsetsResponse(Response):
    groups: list[DescribeShareGroupOffsetsResponseGroup]
