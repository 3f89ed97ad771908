"""ElectLeaders (key 43): elect leaders, the preferred ones or, from 1 on, unclean ones."""

from typing import Annotated

from korvet.wire.schema import Field, Message, Response, i8, i16, i32, request, response
from korvet.wire.structs import TopicPartitions


@request(key=43, versions=(0, 2), flexible=2)
class ElectLeadersRequest(Message):
    election_type: Annotated[i8, Field(since=1)] = 0
    """0 preferred, 1 unclean."""
    topic_partitions: list[TopicPartitions] | None
    """Null asks for all."""
    timeout_ms: i32 = 60000


class PartitionResult(Message):
    partition_id: i32
    error_code: i16 = 0
    error_message: str | None = None


class ReplicaElectionResult(Message):
    topic: str
    partition_result: list[PartitionResult]


@response(ElectLeadersRequest)
class ElectLeadersResponse(Response):
    error_code: Annotated[i16, Field(since=1)] = 0
    replica_election_results: list[ReplicaElectionResult]
