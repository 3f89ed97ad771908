"""ListPartitionReassignments. Return an empty list: nothing is reassigned.

Behaviour
- the response is empty for topics that do not exist, too, as in Kafka
"""

from korvet.context import Context
from korvet.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


async def list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, context: Context
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(topics=[])
