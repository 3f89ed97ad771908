"""DescribeLogDirs (key 35): sizes of partitions, by log directory."""

from typing import Annotated

from korvet.wire.schema import Field, Message, Response, i16, i32, i64, request, response
from korvet.wire.structs import TopicPartitions


@request(key=35, versions=(0, 5), flexible=2)
class DescribeLogDirsRequest(Message):
    topics: list[TopicPartitions] | None
    """Null asks for all."""


class DescribeLogDirsPartition(Message):
    partition_index: i32
    partition_size: i64
    offset_lag: i64 = 0
    """The lag of a copy in another directory."""
    is_future_key: bool = False
    """A copy being made in another directory."""


class DescribeLogDirsTopic(Message):
    name: str
    partitions: list[DescribeLogDirsPartition]


class DescribeLogDirsResult(Message):
    error_code: i16 = 0
    log_dir: str
    topics: list[DescribeLogDirsTopic]
    total_bytes: Annotated[i64, Field(since=4)] = -1
    usable_bytes: Annotated[i64, Field(since=4)] = -1
    is_cordoned: Annotated[bool, Field(since=5)] = False


@response(DescribeLogDirsRequest)
class DescribeLogDirsResponse(Response):
    error_code: Annotated[i16, Field(since=3)] = 0
    results: list[DescribeLogDirsResult]
