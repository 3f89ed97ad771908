"""ConsumerGroupDescribe (key 69), versions 0-1. State and members of groups of the newer protocol.

Behaviour
- GROUP_ID_NOT_FOUND for a group that does not exist or is a classic one
- "Reconciling" while a member has not all that it should, "Stable" after, "Empty" without members
Versions
- v1 the type of a member
"""

import uuid

from korvet.consuming import unpack
from korvet.context import Context
from korvet.errors import ErrorCode
from korvet.scripts import group as scripts
from korvet.wire.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)

CELLS = 10
CONSUMER = 1
ALLOWED = sum(1 << bit for bit in (3, 6, 8, 10, 11))
NOT_ASKED = -(2**31)


async def consumer_group_describe(
    request: ConsumerGroupDescribeRequest, context: Context
) -> ConsumerGroupDescribeResponse:
    allowed = ALLOWED if request.include_authorized_operations else NOT_ASKED
    names = {topic.id: topic.name for topic in await context.topics.all()}
    return ConsumerGroupDescribeResponse(
        groups=[await _group(group, names, allowed, context) for group in request.group_ids]
    )


async def _group(
    group_id: str, names: dict[str, str], allowed: int, context: Context
) -> DescribedGroup:
    reply = await context.store.run(scripts.consumers(context.keys, group_id))
    error = ErrorCode(reply.error)
    rows = reply.members
    return DescribedGroup(
        error_code=error,
        error_message=f"Group {group_id} not found." if error else None,
        group_id=group_id,
        group_state=reply.state.decode(),
        group_epoch=max(reply.epoch, 0),
        assignment_epoch=max(reply.epoch, 0),
        assignor_name=reply.assignor.decode(),
        members=[_member(rows[at : at + CELLS], names) for at in range(0, len(rows), CELLS)],
        authorized_operations=allowed,
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
        subscribed_topic_regex=regex.decode() or None,
        assignment=_assignment(assigned, names),
        target_assignment=_assignment(target, names),
        member_type=CONSUMER,
    )


def _assignment(packed: bytes, names: dict[str, str]) -> Assignment:
    by_topic: dict[str, list[int]] = {}
    for partition in unpack(packed):
        topic_id, _, number = partition.partition(":")
        by_topic.setdefault(topic_id, []).append(int(number))
    return Assignment(
        topic_partitions=[
            TopicPartitions(
                topic_id=uuid.UUID(hex=topic_id),
                topic_name=names.get(topic_id, ""),
                partitions=sorted(numbers),
            )
            for topic_id, numbers in sorted(by_topic.items())
        ]
    )
