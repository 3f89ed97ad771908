"""Heartbeat (key 12), versions 0-4. A group member says it is alive.

Behaviour
- in order: INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION
- REBALANCE_IN_PROGRESS while the members join again: the member is alive all the same
- where heartbeats are frequent one waits up to 20 ms for others, and shares their script call
Versions
- v3 group.instance.id
"""

import asyncio
from collections.abc import Awaitable
from functools import partial

from korvet.context import Context
from korvet.deferred import NOT_READY, Deferred, NotReady
from korvet.errors import ErrorCode
from korvet.groups.stream_reads import note_reader
from korvet.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def heartbeat(request: HeartbeatRequest, context: Context) -> Awaitable[HeartbeatResponse]:
    """The heartbeat is on its way to Redis, or waits a moment for others."""
    if not request.group_id:
        return _refuse(ErrorCode.INVALID_GROUP_ID)
    error = context.services.groups.beats.submit(
        request.group_id,
        request.member_id,
        request.group_instance_id or "",
        request.generation_id,
    )
    return Deferred(
        error,
        partial(_answer_at_once, request, context, error),
        partial(_answer, request, context, error),
    )


async def _refuse(error: ErrorCode) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=error)


def _answer_at_once(
    request: HeartbeatRequest, context: Context, error: "asyncio.Future[int]"
) -> HeartbeatResponse | NotReady:
    if error.cancelled() or error.exception() is not None:
        return NOT_READY
    return _response(request, context, error.result())


async def _answer(
    request: HeartbeatRequest, context: Context, error: "asyncio.Future[int]"
) -> HeartbeatResponse:
    return _response(request, context, await error)


def _response(request: HeartbeatRequest, context: Context, error: int) -> HeartbeatResponse:
    if error in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
        note_reader(context, request.group_id, request.member_id, request.generation_id)
    return HeartbeatResponse(error_code=error)
