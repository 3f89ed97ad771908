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
from korvet.errors import ErrorCode
from korvet.groups.assignment import described_assignment
from korvet.groups.consumer_group import CELLS, unpack
from korvet.groups.describe import describe_each, require_topics
from korvet.security.acl import ResourceType
from korvet.topics.lifecycle import Refused
from korvet.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
)

CONSUMER = 1


async def consumer_group_describe(
    request: ConsumerGroupDescribeRequest, context: Context
) -> ConsumerGroupDescribeResponse:
    asked = request.include_authorized_operations
    names = {topic.id: topic.name for topic in await context.topics.all()}
    describe = partial(_group, names=names, asked=asked, context=context)
    return ConsumerGroupDescribeResponse(
        groups=await describe_each(request.group_ids, describe, DescribedGroup)
    )


async def _group(
    group_id: str, names: dict[str, str], asked: bool, context: Context
) -> DescribedGroup:
    reply = await context.services.groups.run(
        group_id, lambda _: context.keys.group(group_id).consumer_describe(type="consumer")
    )
    if reply.error:
        raise Refused(ErrorCode(reply.error), f"Group {group_id} not found.")
    rows = reply.members
    members = [_member(rows[at : at + CELLS], names) for at in range(0, len(rows), CELLS)]
    require_topics(_topics(members), context.may_describe)
    return DescribedGroup(
        group_id=group_id,
        group_state=reply.state.decode(),
        group_epoch=reply.epoch,
        assignment_epoch=reply.assignment_epoch,
        assignor_name=reply.assignor.decode(),
        members=members,
        authorized_operations=context.authorized_operations(
            ResourceType.GROUP, group_id, asked=asked
        ),
    )


def _topics(members: list[Member]) -> set[str]:
    """Return the topics that the members subscribe to or have partitions of."""
    named = {name for member in members for name in member.subscribed_topic_names}
    return named | {
        row.topic_name
        for member in members
        for of in (member.assignment, member.target_assignment)
        for row in of.topic_partitions
        if row.topic_name
    }


def _member(row: list[bytes], names: dict[str, str]) -> Member:
    member, instance, rack, client_id, host, epoch, topics, regex, assigned, target = row
    return Member(
        member_id=member.decode(),
        instance_id=instance.decode() or None,
        rack_id=rack.decode() or None,
        member_epoch=int(epoch),
        client_id=client_id.decode(),
        client_host=host.decode(),
        subscribed_topic_names=unpack(topics),
        subscribed_topic_regex=regex.decode(),
        assignment=described_assignment(assigned, names, keeps_deleted=True),
        target_assignment=described_assignment(target, names, keeps_deleted=True),
        member_type=CONSUMER,
    )
