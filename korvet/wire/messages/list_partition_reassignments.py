"""ListPartitionReassignments (key 46): the reassignments in progress."""

from korvet.wire.schema import ErrorResponse, Message, i32, request, response
from korvet.wire.structs import PartitionIndexes


@request(key=46, versions=(0, 0), flexible=0)
class ListPartitionReassignmentsRequest(Message):
    timeout_ms: i32 = 60000
    topics: list[PartitionIndexes] | None = None
    """Null asks for all."""


class OngoingPartitionReassignment(Message):
    partition_index: i32
    replicas: list[i32]
    adding_replicas: list[i32]
    removing_replicas: list[i32]


class OngoingTopicReassignment(Message):
    name: str
    partitions: list[OngoingPartitionReassignment]


@response(ListPartitionReassignmentsRequest)
class ListPartitionReassignmentsResponse(ErrorResponse):
    topics: list[OngoingTopicReassignment] = []
