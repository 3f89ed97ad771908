"""Heartbeat. Renew the session of a classic member.

Behaviour
- in order: INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION
- REBALANCE_IN_PROGRESS during the join phase; the session is renewed all the same
- if heartbeats are frequent, one waits up to 20 ms and shares a script call with other ones
Versions
- v3 group.instance.id
"""

import asyncio
from collections.abc import Awaitable
from functools import partial

from korvet.base.deferred import NOT_READY, Deferred, NotReady
from korvet.base.errors import ErrorCode
from korvet.context import Context
from korvet.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def heartbeat(request: HeartbeatRequest, context: Context) -> Awaitable[HeartbeatResponse]:
    """Add the heartbeat to the next batch."""
    if not request.group_id:
        return _error(ErrorCode.INVALID_GROUP_ID)
    error = context.services.groups.heartbeats.submit(
        request.group_id, request.member_id, request.group_instance_id or "", request.generation_id
    )
    return Deferred(
        error,
        partial(_respond_now, request, context, error),
        partial(_respond, request, context, error),
    )


async def _error(error: ErrorCode) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=error)


def _respond_now(
    request: HeartbeatRequest, context: Context, error: "asyncio.Future[int]"
) -> HeartbeatResponse | NotReady:
    if error.cancelled() or error.exception() is not None:
        return NOT_READY
    return _response(request, context, error.result())


async def _respond(
    request: HeartbeatRequest, context: Context, error: "asyncio.Future[int]"
) -> HeartbeatResponse:
    return _response(request, context, await error)


def _response(request: HeartbeatRequest, context: Context, error: int) -> HeartbeatResponse:
    if error in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
        context.services.stream_reads.note_member(
            context.client_id, request.group_id, request.member_id, request.generation_id
        )
    return HeartbeatResponse(error_code=error)
