"""DescribeGroups. State, protocol and members of classic groups.

Behaviour
- a group that does not exist is "Dead"; from 6 on also GROUP_ID_NOT_FOUND
- INVALID_REQUEST for a group that is listed more than ten times
- metadata and assignments of the members are returned while the group is Stable
Versions
- v3 authorized operations, v4 group.instance.id, v6 messages
"""

from korvet.bounded import TOO_OFTEN, gather_named
from korvet.context import Context
from korvet.errors import ErrorCode
from korvet.security.acl import UNASKED, ResourceType
from korvet.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

CLASSIC = b"classic"


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
    reply = await context.services.groups.run(
        name, lambda _: context.keys.group(name).describe(full=1)
    )
    if reply.error or reply.type != CLASSIC:
        if context.version >= 6:
            reason = f"Group {name} not found."
            return _dead(name, ErrorCode.GROUP_ID_NOT_FOUND, reason, UNASKED)
        return _dead(name, ErrorCode.NONE, None, allowed)
    rows = reply.members
    stable = reply.state == b"Stable"
    return DescribedGroup(
        group_id=name,
        group_state=reply.state.decode(),
        protocol_type=reply.protocol_type.decode(),
        protocol_data=reply.protocol.decode() if stable else "",
        members=[_member(rows[at : at + 6]) for at in range(0, len(rows), 6)],
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


def _member(row: list[bytes]) -> DescribedGroupMember:
    member, instance, client_id, client_host, metadata, assignment = row
    return DescribedGroupMember(
        member_id=member.decode(),
        group_instance_id=instance.decode() or None,
        client_id=client_id.decode(),
        client_host=client_host.decode(),
        member_metadata=metadata,
        member_assignment=assignment,
    )
