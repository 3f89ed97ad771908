"""OffsetForLeaderEpoch (key 23): the end offset of a leader epoch, to detect truncation."""

from typing import Annotated

from korvet.wire.schema import Field, Message, i16, i32, i64, request, response


class OffsetForLeaderPartition(Message):
    partition: i32
    current_leader_epoch: Annotated[i32, Field(since=2)] = -1
    leader_epoch: i32


class OffsetForLeaderTopic(Message):
    topic: str
    partitions: list[OffsetForLeaderPartition]


@request(key=23, versions=(0, 4), flexible=4)
class OffsetForLeaderEpochRequest(Message):
    replica_id: Annotated[i32, Field(since=3)] = -2
    topics: list[OffsetForLeaderTopic]


class EpochEndOffset(Message):
    error_code: i16 = 0
    partition: i32
    leader_epoch: Annotated[i32, Field(since=1)] = -1
    end_offset: i64 = -1


class OffsetForLeaderTopicResult(Message):
    topic: str
    partitions: list[EpochEndOffset]


@response(OffsetForLeaderEpochRequest)
class OffsetForLeaderEpochResponse(Message):
    throttle_time_ms: Annotated[i32, Field(since=2)] = 0
    topics: list[OffsetForLeaderTopicResult]
