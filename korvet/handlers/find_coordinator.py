"""FindCoordinator (key 10), versions 0-6. Which broker looks after a group or a transactional id.

Behaviour
- any broker coordinates any group, since all state is in Redis: the answer is this broker
- INVALID_REQUEST for a key type nobody knows
Versions
- v1 key types, v4 several keys in one request
"""

from korvet.context import Context
from korvet.errors import ErrorCode
from korvet.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)


async def find_coordinator(
    request: FindCoordinatorRequest, context: Context
) -> FindCoordinatorResponse:
    me = context.node.membership.me
    error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    if context.version < 4:
        return FindCoordinatorResponse(
            error_code=error, error_message=error.message, node_id=-1, host="", port=-1
        )
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(
                key=key,
                node_id=me.id,
                host=me.host,
                port=me.port,
                error_code=error,
                error_message=error.message,
            )
            for key in request.coordinator_keys
        ]
    )
