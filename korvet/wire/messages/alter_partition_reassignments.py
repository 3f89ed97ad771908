"""AlterPartitionReassignments (key 45): move partitions to other replicas, or cancel that."""

from typing import Annotated

from korvet.wire.schema import Field, Message, Response, i16, i32, request, response
from korvet.wire.structs import PartitionErrorMessage


class ReassignablePartition(Message):
    partition_index: i32
    replicas: list[i32] | None = None
    """Null cancels the reassignment in progress."""


class ReassignableTopic(Message):
    name: str
    partitions: list[ReassignablePartition]


@request(key=45, versions=(0, 1), flexible=0)
class AlterPartitionReassignmentsRequest(Message):
    timeout_ms: i32 = 60000
    allow_replication_factor_change: Annotated[bool, Field(since=1)] = True
    topics: list[ReassignableTopic]


class ReassignableTopicResponse(Message):
    name: str
    partitions: list[PartitionErrorMessage]


@response(AlterPartitionReassignmentsRequest)
class AlterPartitionReassignmentsResponse(Response):
    allow_replication_factor_change: Annotated[bool, Field(since=1)] = True
    error_code: i16 = 0
    error_message: str | None = None
    responses: list[ReassignableTopicResponse]
