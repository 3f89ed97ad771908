"""DescribeGroups. State, protocol and members of classic groups.

Behaviour
- a group that does not exist is "Dead"; from 6 on also GROUP_ID_NOT_FOUND
- INVALID_REQUEST for a group that is listed more than ten times
- metadata and assignments of the members are returned while the group is Stable
Versions
- v3 authorized operations, v4 group.instance.id, v6 messages
"""

from korvet.base.bounded import TOO_OFTEN, gather_named
from korvet.base.errors import ErrorCode
from korvet.context import Context
from korvet.groups.description import CLASSIC, describe
from korvet.security.acl import UNASKED, ResourceType
from korvet.topics.lifecycle import Refused
from korvet.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)


async def describe_groups(
    request: DescribeGroupsRequest, context: Context
) -> DescribeGroupsResponse:
    asked = request.include_authorized_operations

    def allowed(name: str) -> int:
        return context.authorized_operations(ResourceType.GROUP, name, asked=asked)

    found = await gather_named(
        lambda name: _group(name, allowed(name), context),
        lambda name: _dead(name, ErrorCode.INVALID_REQUEST, TOO_OFTEN, allowed(name)),
        request.groups,
    )
    return DescribeGroupsResponse(groups=found)


async def _group(name: str, allowed: int, context: Context) -> DescribedGroup:
    try:
        group = await describe(context.services.groups, name)
    except Refused:
        group = None
    if group is None or group.type != CLASSIC:
        if context.version >= 6:
            reason = f"Group {name} not found."
            return _dead(name, ErrorCode.GROUP_ID_NOT_FOUND, reason, UNASKED)
        return _dead(name, ErrorCode.NONE, None, allowed)
    return DescribedGroup(
        group_id=name,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.assignor if group.state == "Stable" else "",
        members=[
            DescribedGroupMember(
                member_id=member.id,
                group_instance_id=member.instance,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assigned.encoded,
            )
            for member in group.members
        ],
        authorized_operations=allowed,
    )


def _dead(name: str, error: ErrorCode, reason: str | None, allowed: int) -> DescribedGroup:
    return DescribedGroup(
        error_code=error,
        error_message=reason,
        group_id=name,
        group_state="Dead",
        authorized_operations=allowed,
    )
