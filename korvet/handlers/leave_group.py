"""LeaveGroup. Remove members, and rebalance the group.

Behaviour
- INVALID_GROUP_ID; per member UNKNOWN_MEMBER_ID and FENCED_INSTANCE_ID
- version 3 on: an instance without a member id removes that static member
- members of a consumer group (KIP-848) can be removed too
Versions
- up to 2 one member, whose error is the response's; v3 several, v5 reasons (ignored)
"""

from korvet.base.errors import ErrorCode
from korvet.context import Context
from korvet.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)


async def leave_group(request: LeaveGroupRequest, context: Context) -> LeaveGroupResponse:
    if not request.group_id:
        return LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    leavers = request.members
    if context.version < 3:
        leavers = [MemberIdentity(member_id=request.member_id)]
    replies = await context.services.groups.run_rows(
        request.group_id,
        [(one.member_id, one.group_instance_id or "") for one in leavers],
        lambda some, _: context.keys.group(request.group_id).leave(some),
    )
    for one in leavers:
        context.services.stream_reads.forget_member(
            context.client_id, request.group_id, one.member_id
        )
    results = [code for reply in replies for code in reply.results]
    results += [replies[-1].error] * (len(leavers) - len(results))
    if context.version < 3:
        return LeaveGroupResponse(error_code=results[0])
    return LeaveGroupResponse(
        members=[
            MemberResponse(
                member_id=one.member_id, group_instance_id=one.group_instance_id, error_code=error
            )
            for one, error in zip(leavers, results, strict=True)
        ]
    )
