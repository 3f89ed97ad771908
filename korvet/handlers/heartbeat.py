"""Heartbeat (key 12), versions 0-4. A group member says it is alive.

Behaviour
- in order: INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION
- REBALANCE_IN_PROGRESS while the members join again: the member is alive all the same
Versions
- v3 group.instance.id
"""

from korvet.context import Context
from korvet.coordinating import groups
from korvet.errors import ErrorCode
from korvet.scripts import group as scripts
from korvet.streaming import note_reader
from korvet.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


async def heartbeat(request: HeartbeatRequest, context: Context) -> HeartbeatResponse:
    if not request.group_id:
        return HeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    reply = await groups(context).run(
        request.group_id,
        lambda _: scripts.heartbeat(
            context.keys,
            request.group_id,
            member=request.member_id,
            instance=request.group_instance_id or "",
            generation=request.generation_id,
        ),
    )
    if not reply.error:
        note_reader(context, request.group_id, request.member_id, request.generation_id)
    return HeartbeatResponse(error_code=reply.error)
