"""ConsumerGroupDescribe. State and members of consumer groups (KIP-848).

Behaviour
- INVALID_GROUP_ID for an empty id, INVALID_REQUEST for one that is listed more than ten times
- TOPIC_AUTHORIZATION_FAILED for a group with a topic that the client may not describe
- GROUP_ID_NOT_FOUND for a group that does not exist or is a classic one
- "Assigning" until the target assignment of the group epoch is computed, "Reconciling" until all
  members own their target, then "Stable"; "Empty" without members
Versions
- v1 the member type
"""

from functools import partial

from korvet.context import Context
from korvet.groups.description import (
    CONSUMER,
    Group,
    describe_each,
    described_assignment,
)
from korvet.security.acl import ResourceType
from korvet.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
)

CONSUMER_MEMBER = 1


async def consumer_group_describe(
    request: ConsumerGroupDescribeRequest, context: Context
) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(
        groups=await describe_each(
            context.services.groups,
            CONSUMER,
            request.group_ids,
            context.may_describe,
            partial(_row, request=request, context=context),
            DescribedGroup,
        )
    )


def _row(group: Group, request: ConsumerGroupDescribeRequest, context: Context) -> DescribedGroup:
    named = partial(described_assignment, topics=context.topics, keeps_deleted=True)
    return DescribedGroup(
        group_id=group.id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=[
            Member(
                member_id=member.id,
                instance_id=member.instance,
                rack_id=member.rack,
                member_epoch=member.epoch,
                client_id=member.client_id,
                client_host=member.client_host,
                subscribed_topic_names=member.names,
                subscribed_topic_regex=member.regex,
                assignment=named(member.assigned),
                target_assignment=named(member.target),
                member_type=CONSUMER_MEMBER,
            )
            for member in group.members
        ],
        authorized_operations=context.authorized_operations(
            ResourceType.GROUP, group.id, asked=request.include_authorized_operations
        ),
    )
