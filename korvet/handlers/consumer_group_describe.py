"""ConsumerGroupDescribe (key 69), versions 0-1. State and members of consumer groups (KIP-848).

Behaviour
- INVALID_GROUP_ID for an empty id, INVALID_REQUEST for one that is listed more than ten times
- GROUP_ID_NOT_FOUND for a group that does not exist or is a classic one
- "Assigning" until the target assignment of the group epoch is computed, "Reconciling" until all
  members own their target, then "Stable"; "Empty" without members
Versions
- v1 the member type
"""

import uuid

from korvet.admin import authorized_operations
from korvet.bounded import TOO_OFTEN, RepeatLimit
from korvet.context import Context
from korvet.errors import ErrorCode
from korvet.groups.assignment import decode_assignment
from korvet.groups.consumer_group import CELLS, unpack
from korvet.scripts import group as scripts
from korvet.wire.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)

CONSUMER = 1


async def consumer_group_describe(
    request: ConsumerGroupDescribeRequest, context: Context
) -> ConsumerGroupDescribeResponse:
    asked = request.include_authorized_operations
    allowed = authorized_operations.GROUP if asked else authorized_operations.UNASKED
    names = {topic.id: topic.name for topic in await context.topics.all()}
    times = RepeatLimit()
    return ConsumerGroupDescribeResponse(
        groups=[
            _error(group, ErrorCode.INVALID_REQUEST, TOO_OFTEN)
            if times.too_many(group)
            else await _group(group, names, allowed, context)
            for group in request.group_ids
        ]
    )


async def _group(
    group_id: str, names: dict[str, str], allowed: int, context: Context
) -> DescribedGroup:
    if not group_id:
        return _error(group_id, ErrorCode.INVALID_GROUP_ID, None)
    reply = await context.services.groups.run(
        group_id, lambda _: scripts.consumer_describe(context.keys, group_id)
    )
    if reply.error:
        return _error(group_id, ErrorCode(reply.error), f"Group {group_id} not found.")
    rows = reply.members
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=reply.state.decode(),
        group_epoch=reply.epoch,
        assignment_epoch=reply.assignment_epoch,
        assignor_name=reply.assignor.decode(),
        members=[_member(rows[at : at + CELLS], names) for at in range(0, len(rows), CELLS)],
        authorized_operations=allowed,
    )


def _error(group_id: str, error: ErrorCode, reason: str | None) -> DescribedGroup:
    return DescribedGroup(
        error_code=error,
        error_message=reason,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )


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
        assignment=_assignment(assigned, names),
        target_assignment=_assignment(target, names),
        member_type=CONSUMER,
    )


def _assignment(encoded: bytes, names: dict[str, str]) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(
                topic_id=uuid.UUID(hex=topic_id),
                topic_name=names.get(topic_id, ""),
                partitions=numbers,
            )
            for topic_id, numbers in decode_assignment(encoded).items()
        ]
    )
