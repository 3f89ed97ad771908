"""DescribeShareGroupOffsets. Return where share groups start (KIP-932).

Behaviour
- GROUP_AUTHORIZATION_FAILED per group, TOPIC_AUTHORIZATION_FAILED per partition; null topics leave
  out the topics that the client may not describe
- null topics: all topics that members have read, or whose offsets were altered
- offset -1, lag -1 and no error where the group has not read, and for an unknown group, topic or
  partition
- the lag counts records that are not accepted, rejected or delivered too often, in any offset mode
- INVALID_REQUEST for a group or a topic that is listed more than ten times
Versions
- v1 the lag
"""

from korvet.base.bounded import TOO_OFTEN, gather_named
from korvet.base.errors import ErrorCode
from korvet.context import Context
from korvet.groups.share_group import UNKNOWN, SharePartition
from korvet.security.acl import Operation, ResourceType
from korvet.topics.table import Topic
from korvet.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from korvet.wire.schema import ZERO_UUID

Asked = DescribeShareGroupOffsetsRequestTopic
Answer = DescribeShareGroupOffsetsResponseTopic


async def describe_share_group_offsets(
    request: DescribeShareGroupOffsetsRequest, context: Context
) -> DescribeShareGroupOffsetsResponse:
    groups = await gather_named(
        lambda group: _group(group, context),
        lambda group: _error(group.group_id, ErrorCode.INVALID_REQUEST, TOO_OFTEN),
        request.groups,
        lambda group: group.group_id,
    )
    return DescribeShareGroupOffsetsResponse(groups=groups)


async def _group(
    asked: DescribeShareGroupOffsetsRequestGroup, context: Context
) -> DescribeShareGroupOffsetsResponseGroup:
    if not context.allows(Operation.DESCRIBE, ResourceType.GROUP, asked.group_id):
        return _error(asked.group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if asked.topics is None:
        rows = await context.services.share_offsets.describe_all(asked.group_id)
        rows = [row for row in rows if context.may_describe(row.topic.name, audit=False)]
        topics = _by_topic(rows)
    else:
        topics = await gather_named(
            lambda topic: _topic(asked.group_id, topic, context),
            lambda topic: _refused(topic, ErrorCode.INVALID_REQUEST, TOO_OFTEN),
            asked.topics,
            lambda topic: topic.topic_name,
        )
    return DescribeShareGroupOffsetsResponseGroup(
        group_id=asked.group_id, topics=topics, error_code=ErrorCode.NONE
    )


async def _topic(group_id: str, asked: Asked, context: Context) -> Answer:
    if not context.may_describe(asked.topic_name):
        return _refused(asked, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    topic = await context.topics.get(asked.topic_name)
    if topic is None:
        return _refused(asked, ErrorCode.NONE)
    numbers = list(dict.fromkeys(asked.partitions))
    known = [(topic, number) for number in numbers if 0 <= number < topic.partitions]
    found = {
        row.partition: row for row in await context.services.share_offsets.describe(group_id, known)
    }
    rows = [found.get(number) or SharePartition(topic, number) for number in numbers]
    return _answer(topic, rows)


def _by_topic(rows: list[SharePartition]) -> list[Answer]:
    topics = {row.topic.name: row.topic for row in rows}
    return [
        _answer(topic, [row for row in rows if row.topic.name == name])
        for name, topic in topics.items()
    ]


def _answer(topic: Topic, rows: list[SharePartition]) -> Answer:
    return Answer(
        topic_name=topic.name,
        topic_id=topic.uuid,
        partitions=[
            DescribeShareGroupOffsetsResponsePartition(
                partition_index=row.partition, start_offset=row.start, lag=row.lag
            )
            for row in rows
        ],
    )


def _refused(asked: Asked, error: ErrorCode, reason: str | None = None) -> Answer:
    return Answer(
        topic_name=asked.topic_name,
        topic_id=ZERO_UUID,
        partitions=[
            DescribeShareGroupOffsetsResponsePartition(
                partition_index=number,
                start_offset=UNKNOWN,
                error_code=error,
                error_message=reason or (error.message if error else None),
            )
            for number in asked.partitions
        ],
    )


def _error(
    group_id: str, error: ErrorCode, reason: str | None = None
) -> DescribeShareGroupOffsetsResponseGroup:
    return DescribeShareGroupOffsetsResponseGroup(
        group_id=group_id, error_code=error, error_message=reason or error.message
    )
