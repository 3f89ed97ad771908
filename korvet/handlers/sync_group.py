"""SyncGroup. Store the leader's assignment, return the member's.

Behaviour
- in order: INCONSISTENT_GROUP_PROTOCOL if version 5 has no type or name, INVALID_GROUP_ID,
  UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL,
  REBALANCE_IN_PROGRESS
- a follower's response waits for the leader's request; a rebalance that begins ends the wait
- UNKNOWN_SERVER_ERROR for assignments that are larger than group.max.bytes or more than
  group.max.size: Kafka's error for a group too large to be stored
- assignments of unknown members are ignored, members that the leader left out get an empty one
- a repeated request in a stable group returns the same assignment
Versions
- v3 group.instance.id, v5 protocol type and name
"""

from collections.abc import Iterable

from korvet.base.errors import ErrorCode
from korvet.context import Context
from korvet.scripts.call import Call
from korvet.scripts.calls.group import SyncReply
from korvet.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

EMPTY = "\0"
"""What the script gets for an empty protocol type or name: no group's equals it."""


async def sync_group(request: SyncGroupRequest, context: Context) -> SyncGroupResponse:
    if context.version >= 5 and (request.protocol_type is None or request.protocol_name is None):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if not request.group_id:
        return SyncGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)

    settings, given = context.settings, request.assignments
    size = sum(len(row.member_id) + len(row.assignment) for row in given)
    is_wide = len(given) > settings.integer("group.max.size")
    if is_wide or size > settings.integer("group.max.bytes"):
        return SyncGroupResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)

    def call(assignments: Iterable[tuple[str, bytes]]) -> Call[SyncReply]:
        return context.keys.group(request.group_id).sync(
            assignments,
            member=request.member_id,
            instance=request.group_instance_id or "",
            generation=request.generation_id,
            protocol_type=_compared(request.protocol_type),
            protocol=_compared(request.protocol_name),
        )

    pairs = [(row.member_id, row.assignment) for row in given]
    reply = await context.services.groups.sync(
        request.group_id, lambda _: call(pairs), lambda _: call(())
    )
    if reply.error:
        return SyncGroupResponse(error_code=ErrorCode(reply.error))
    context.services.stream_reads.note_member(
        context.client_id, request.group_id, request.member_id, request.generation_id
    )
    return SyncGroupResponse(
        protocol_type=reply.protocol_type.decode(),
        protocol_name=reply.protocol.decode(),
        assignment=reply.assignment,
    )


def _compared(word: str | None) -> str:
    """Return what the script compares; it does not compare an empty string."""
    return "" if word is None else word or EMPTY
