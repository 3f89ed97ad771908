"""FindCoordinator (key 10), versions 0-6. Which broker looks after a group or a transactional id.

Behaviour
- any broker coordinates any group and any transaction, since all state is in Redis: this one
- INVALID_REQUEST for a key type that is not served
Versions
- v1 key types, v4 several keys in one request
Left out
- share groups (key type 2, v6): INVALID_REQUEST
"""

from korvet.context import Context
from korvet.errors import ErrorCode
from korvet.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

GROUP, TRANSACTION = 0, 1


async def find_coordinator(
    request: FindCoordinatorRequest, context: Context
) -> FindCoordinatorResponse:
    me = context.node.membership.me
    node_id, host, port = me.id, me.host, me.port
    error, reason = ErrorCode.NONE, "NONE"
    if request.key_type not in (GROUP, TRANSACTION):
        error = ErrorCode.INVALID_REQUEST
        reason = f"Coordinators of key type {request.key_type} are not served here."
        node_id, host, port = -1, "", -1
    if context.version < 4:
        return FindCoordinatorResponse(
            error_code=error, error_message=reason, node_id=node_id, host=host, port=port
        )
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(
                key=key,
                node_id=node_id,
                host=host,
                port=port,
                error_code=error,
                error_message=reason,
            )
            for key in request.coordinator_keys
        ]
    )
