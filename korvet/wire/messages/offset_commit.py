"""OffsetCommit (key 8): commit a group's offsets.

Version 0 was stored in ZooKeeper and has no generation; only 1 has a timestamp per partition. From
2 to 4 the request may have a retention of the offsets. Ids replace names in 10.
"""

from typing import Annotated

from korvet.wire.schema import ZERO_UUID, Field, Message, i32, i64, request, response, uuid
from korvet.wire.structs import PartitionError


class OffsetCommitRequestPartition(Message):
    partition_index: i32
    committed_offset: i64
    committed_leader_epoch: Annotated[i32, Field(since=6)] = -1
    commit_timestamp: Annotated[i64, Field(since=1, until=1)] = -1
    committed_metadata: str | None


class OffsetCommitRequestTopic(Message):
    name: Annotated[str, Field(until=9)] = ""
    topic_id: Annotated[uuid, Field(since=10)] = ZERO_UUID
    partitions: list[OffsetCommitRequestPartition]


@request(key=8, versions=(0, 10), flexible=8)
class OffsetCommitRequest(Message):
    group_id: str
    generation_id_or_member_epoch: Annotated[i32, Field(since=1)] = -1
    member_id: Annotated[str, Field(since=1)] = ""
    group_instance_id: Annotated[str | None, Field(since=7)] = None
    retention_time_ms: Annotated[i64, Field(since=2, until=4)] = -1
    """-1: the retention of the broker."""
    topics: list[OffsetCommitRequestTopic]


class OffsetCommitResponseTopic(Message):
    name: Annotated[str, Field(until=9)] = ""
    topic_id: Annotated[uuid, Field(since=10)] = ZERO_UUID
    partitions: list[PartitionError]


@response(OffsetCommitRequest)
class OffsetCommitResponse(Message):
    throttle_time_ms: Annotated[i32, Field(since=3)] = 0
    topics: list[OffsetCommitResponseTopic]
