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
    describe_each,
    describe_modern,
    described_assignment,
    require_topics,
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
    describe = partial(_group, asked=request.include_authorized_operations, context=context)
    return ConsumerGroupDescribeResponse(
        groups=await describe_each(request.group_ids, describe, DescribedGroup)
    )


async def _group(group_id: str, asked: bool, context: Context) -> DescribedGroup:
    named = partial(described_assignment, topics=context.topics, keeps_deleted=True)
    group = await describe_modern(context.services.groups, group_id, CONSUMER)
    await require_topics(group, context.topics, context.may_describe)
    return DescribedGroup(
        group_id=group_id,
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
            ResourceType.GROUP, group_id, asked=asked
        ),
    )
