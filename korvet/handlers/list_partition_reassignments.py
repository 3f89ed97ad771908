"""ListPartitionReassignments (key 46), version 0. Nothing is ever being moved.

Behaviour
- the answer is empty, also for topics that do not exist, as Kafka's is
"""

from korvet.context import Context
from korvet.errors import ErrorCode
from korvet.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


async def list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, context: Context
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_code=ErrorCode.NONE, topics=[])
