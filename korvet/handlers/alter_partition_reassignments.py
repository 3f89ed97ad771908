"""AlterPartitionReassignments. Accept only the current assignment.

Behaviour
- checked in this order: UNKNOWN_TOPIC_OR_PARTITION, NO_REASSIGNMENT_IN_PROGRESS (cancelling),
  INVALID_REPLICA_ASSIGNMENT: empty, a broker twice, an unknown broker, or any assignment other than
  the current one; requesting the current one is no error
Versions
- v1 allow_replication_factor_change (without effect)
Left out
- reassignment: every broker serves every partition from Redis, so there are no replicas to move
"""

from korvet.base.errors import ErrorCode
from korvet.cluster.registration import leader_of
from korvet.context import Context
from korvet.topics.lifecycle import Refused, check_assignment, outcome
from korvet.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopicResponse,
)
from korvet.wire.structs import PartitionErrorMessage


async def alter_partition_reassignments(
    request: AlterPartitionReassignmentsRequest, context: Context
) -> AlterPartitionReassignmentsResponse:
    responses = []
    for topic in request.topics:
        rows = []
        for row in topic.partitions:
            error, reason = await outcome(_check(topic.name, row, context))
            rows.append(
                PartitionErrorMessage(
                    partition_index=row.partition_index, error_code=error, error_message=reason
                )
            )
        responses.append(ReassignableTopicResponse(name=topic.name, partitions=rows))
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change, responses=responses
    )


async def _check(name: str, row: ReassignablePartition, context: Context) -> None:
    number = row.partition_index
    topic = await context.topics.get(name)
    if topic is None or not 0 <= number < topic.partitions:
        raise Refused(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{number}."
        )
    if row.replicas is None:
        error = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        raise Refused(error, error.message)
    registration = context.services.registration
    check_assignment(row.replicas, {broker.id for broker in registration.brokers})
    if row.replicas != [leader_of(number, registration.nodes(context.session.listener))]:
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Partitions cannot be moved: every broker serves every partition from Redis.",
        )
