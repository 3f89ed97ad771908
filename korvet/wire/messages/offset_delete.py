"""OffsetDelete (key 47): delete a group's committed offsets of some partitions. Never flexible."""

from korvet.wire.schema import Message, i16, i32, request, response
from korvet.wire.structs import TopicErrors


class OffsetDeleteRequestPartition(Message):
    partition_index: i32


class OffsetDeleteRequestTopic(Message):
    name: str
    partitions: list[OffsetDeleteRequestPartition]


@request(key=47, versions=(0, 0), flexible=None)
class OffsetDeleteRequest(Message):
    group_id: str
    topics: list[OffsetDeleteRequestTopic]


@response(OffsetDeleteRequest)
class OffsetDeleteResponse(Message):
    error_code: i16 = 0
    throttle_time_ms: i32 = 0
    topics: list[TopicErrors] = []
