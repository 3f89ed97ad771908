"""OffsetFetch (key 9): the committed offsets of groups.

Version 0 read from ZooKeeper. From 2 on null requests every partition, and the response has an
error for the group. One group up to 7, several from 8 on; ids replace names in 10.
"""

from typing import Annotated

from korvet.wire.schema import ZERO_UUID, Field, Message, i16, i32, i64, request, response, uuid


class OffsetFetchRequestTopics(Message):
    name: Annotated[str, Field(until=9)] = ""
    topic_id: Annotated[uuid, Field(since=10)] = ZERO_UUID
    partition_indexes: list[i32]


class OffsetFetchRequestGroup(Message):
    group_id: str
    member_id: Annotated[str | None, Field(since=9)] = None
    member_epoch: Annotated[i32, Field(since=9)] = -1
    topics: list[OffsetFetchRequestTopics] | None
    """Null asks for all."""


@request(key=9, versions=(0, 10), flexible=6)
class OffsetFetchRequest(Message):
    group_id: Annotated[str, Field(until=7)] = ""
    topics: Annotated[list[OffsetFetchRequestTopics] | None, Field(until=7, nullable_since=2)] = []
    """Null asks for all, from 2 on."""
    groups: Annotated[list[OffsetFetchRequestGroup], Field(since=8)] = []
    require_stable: Annotated[bool, Field(since=7)] = False
    """Return UNSTABLE_OFFSET_COMMIT for a partition with a pending commit."""


class OffsetFetchResponsePartitions(Message):
    partition_index: i32
    committed_offset: i64
    committed_leader_epoch: Annotated[i32, Field(since=5)] = -1
    metadata: str | None
    error_code: i16 = 0


class OffsetFetchResponseTopic(Message):
    name: str
    partitions: list[OffsetFetchResponsePartitions]


class OffsetFetchResponseTopics(Message):
    name: Annotated[str, Field(until=9)] = ""
    topic_id: Annotated[uuid, Field(since=10)] = ZERO_UUID
    partitions: list[OffsetFetchResponsePartitions]


class OffsetFetchResponseGroup(Message):
    group_id: str
    topics: list[OffsetFetchResponseTopics] = []
    error_code: i16 = 0


@response(OffsetFetchRequest)
class OffsetFetchResponse(Message):
    throttle_time_ms: Annotated[i32, Field(since=3)] = 0
    topics: Annotated[list[OffsetFetchResponseTopic], Field(until=7)] = []
    error_code: Annotated[i16, Field(since=2, until=7)] = 0
    groups: Annotated[list[OffsetFetchResponseGroup], Field(since=8)] = []
