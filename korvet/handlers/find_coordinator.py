"""FindCoordinator. Return the coordinator of a group or transactional id.

Behaviour
- any broker can coordinate any group and any transaction, since all state is in Redis; all return
  the same reachable one, so that a client that asks two brokers does not join twice
- from the first request for a group on, `__consumer_offsets` is in a list of all topics
- GROUP_AUTHORIZATION_FAILED, TRANSACTIONAL_ID_AUTHORIZATION_FAILED per key
- INVALID_REQUEST for an unsupported key type
Versions
- v1 key types, v4 several keys in one request
Left out
- share coordinators (key type 2, v6): INVALID_REQUEST; the state of share groups is in Redis
"""

from contextlib import suppress

from korvet.base.bounded import gather_bounded
from korvet.base.errors import ErrorCode
from korvet.context import Context
from korvet.security.acl import Operation, ResourceType
from korvet.store.errors import StoreError
from korvet.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

GROUP, TRANSACTION = 0, 1
DENIED = (ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


async def find_coordinator(
    request: FindCoordinatorRequest, context: Context
) -> FindCoordinatorResponse:
    if context.version < 4:
        only = await _coordinator(request.key, request.key_type, context)
        return FindCoordinatorResponse(
            error_code=only.error_code,
            error_message=only.error_message,
            node_id=only.node_id,
            host=only.host,
            port=only.port,
        )
    found = await gather_bounded(
        lambda key: _coordinator(key, request.key_type, context), request.coordinator_keys
    )
    return FindCoordinatorResponse(coordinators=found)


async def _coordinator(key: str, key_type: int, context: Context) -> Coordinator:
    if key_type not in (GROUP, TRANSACTION):
        reason = f"Unsupported key type {key_type}; use 0 (group) or 1 (transaction)."
        return _refusal(key, ErrorCode.INVALID_REQUEST, reason)
    kind = ResourceType.GROUP if key_type == GROUP else ResourceType.TRANSACTIONAL_ID
    if not context.allows(Operation.DESCRIBE, kind, key):
        return _refusal(key, DENIED[key_type])
    if key_type == GROUP:
        with suppress(StoreError):
            await context.services.offsets_view.list_from_now()
    named = await context.services.coordinators.choose(key, context.session.listener)
    if named is None:
        return _refusal(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return Coordinator(
        key=key, node_id=named.id, host=named.host, port=named.port, error_message="NONE"
    )


def _refusal(key: str, error: ErrorCode, reason: str | None = None) -> Coordinator:
    return Coordinator(key=key, error_code=error, error_message=reason or error.message)
