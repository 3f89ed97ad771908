"""ShareGroupDescribe. State and members of share groups (KIP-932).

Behaviour
- INVALID_GROUP_ID for an empty id, INVALID_REQUEST for one that is listed more than ten times
- TOPIC_AUTHORIZATION_FAILED for a group with a topic that the client may not describe
- GROUP_ID_NOT_FOUND for a group that does not exist or is of another type
- "Stable" with members, else "Empty"; the assignor is `simple`
"""

from functools import partial

from korvet.context import Context
from korvet.groups.description import (
    SHARE,
    Group,
    describe_each,
    described_assignment,
)
from korvet.security.acl import ResourceType
from korvet.wire.messages.share_group_describe import (
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)


async def share_group_describe(
    request: ShareGroupDescribeRequest, context: Context
) -> ShareGroupDescribeResponse:
    return ShareGroupDescribeResponse(
        groups=await describe_each(
            context.services.groups,
            SHARE,
            request.group_ids,
            context.may_describe,
            partial(_row, request=request, context=context),
            DescribedGroup,
        )
    )


def _row(group: Group, request: ShareGroupDescribeRequest, context: Context) -> DescribedGroup:
    # Topics that are deleted are left out, as in Kafka.
    named = partial(described_assignment, topics=context.topics, keeps_deleted=False)
    return DescribedGroup(
        group_id=group.id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=context.settings.words("group.share.assignors")[0],
        members=[
            Member(
                member_id=member.id,
                rack_id=member.rack,
                member_epoch=member.epoch,
                client_id=member.client_id,
                client_host=member.client_host,
                subscribed_topic_names=member.names,
                assignment=named(member.assigned),
            )
            for member in group.members
        ],
        authorized_operations=context.authorized_operations(
            ResourceType.GROUP, group.id, asked=request.include_authorized_operations
        ),
    )
