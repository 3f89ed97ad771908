"""ElectLeaders. Return ELECTION_NOT_NEEDED: any broker serves any partition.

Behaviour
- ELECTION_NOT_NEEDED for each partition that exists, UNKNOWN_TOPIC_OR_PARTITION for the others
- a request for all partitions returns the topics without partitions, as there was nothing to do
- INVALID_REQUEST for an unknown election type
Versions
- v1 election types, v2 flexible
"""

from korvet.base.errors import ErrorCode
from korvet.context import Context
from korvet.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

PREFERRED, UNCLEAN = 0, 1


async def elect_leaders(request: ElectLeadersRequest, context: Context) -> ElectLeadersResponse:
    known_type = request.election_type in (PREFERRED, UNCLEAN)
    results = []
    if request.topic_partitions is None and known_type:
        results = [
            ReplicaElectionResult(topic=topic.name, partition_result=[])
            for topic in await context.topics.all()
        ]
    for row in request.topic_partitions or ():
        topic = await context.topics.get(row.topic)
        partitions = []
        for number in row.partitions:
            error = ErrorCode.ELECTION_NOT_NEEDED
            if not known_type:
                error = ErrorCode.INVALID_REQUEST
            elif topic is None or not 0 <= number < topic.partitions:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            partitions.append(
                PartitionResult(partition_id=number, error_code=error, error_message=error.message)
            )
        results.append(ReplicaElectionResult(topic=row.topic, partition_result=partitions))
    return ElectLeadersResponse(
        error_code=ErrorCode.NONE if known_type else ErrorCode.INVALID_REQUEST,
        replica_election_results=results,
    )
