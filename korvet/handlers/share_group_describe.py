"""ShareGroupDescribe. State and members of share groups (KIP-932).

Behaviour
- INVALID_GROUP_ID for an empty id, INVALID_REQUEST for one that is listed more than ten times
- TOPIC_AUTHORIZATION_FAILED for a group with a topic that the client may not describe
- GROUP_ID_NOT_FOUND for a group that does not exist or is of another type
- "Stable" with members, else "Empty"; the assignor is `simple`
"""

from functools import partial

from korvet.context import Context
from korvet.errors import ErrorCode
from korvet.groups.assignment import described_assignment
from korvet.groups.consumer_group import CELLS, unpack
from korvet.groups.describe import describe_each, require_topics
from korvet.security.acl import ResourceType
from korvet.topics.lifecycle import Refused
from korvet.wire.messages.share_group_describe import (
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)


async def share_group_describe(
    request: ShareGroupDescribeRequest, context: Context
) -> ShareGroupDescribeResponse:
    asked = request.include_authorized_operations
    names = {topic.id: topic.name for topic in await context.topics.all()}
    describe = partial(_group, names=names, asked=asked, context=context)
    return ShareGroupDescribeResponse(
        groups=await describe_each(request.group_ids, describe, DescribedGroup)
    )


async def _group(
    group_id: str, names: dict[str, str], asked: bool, context: Context
) -> DescribedGroup:
    reply = await context.services.groups.run(
        group_id, lambda _: context.keys.group(group_id).consumer_describe(type="share")
    )
    if reply.error:
        raise Refused(ErrorCode(reply.error), f"Share group {group_id} not found.")
    rows = reply.members
    members = [_member(rows[at : at + CELLS], names) for at in range(0, len(rows), CELLS)]
    topics = {row.topic_name for member in members for row in member.assignment.topic_partitions}
    require_topics(topics, context.may_describe)
    return DescribedGroup(
        group_id=group_id,
        group_state=reply.state.decode(),
        group_epoch=reply.epoch,
        assignment_epoch=reply.assignment_epoch,
        assignor_name=context.settings.words("group.share.assignors")[0],
        members=members,
        authorized_operations=context.authorized_operations(
            ResourceType.GROUP, group_id, asked=asked
        ),
    )


def _member(row: list[bytes], names: dict[str, str]) -> Member:
    member, _, rack, client_id, host, epoch, topics, _, assigned, _ = row
    return Member(
        member_id=member.decode(),
        rack_id=rack.decode() or None,
        member_epoch=int(epoch),
        client_id=client_id.decode(),
        client_host=host.decode(),
        subscribed_topic_names=unpack(topics),
        # Topics that are deleted are left out, as in Kafka.
        assignment=described_assignment(assigned, names, keeps_deleted=False),
    )
