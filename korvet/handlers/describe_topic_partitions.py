"""DescribeTopicPartitions. Return topics and partitions, page by page.

Behaviour
- topics are sorted by name; no names mean all topics; a page has at most 2,000 partitions
- TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION per topic, after
  the topics that exist; without names, topics that the client may not describe are left out
- INVALID_REQUEST for all if the cursor's topic is not requested, or its partition is negative
"""

from korvet.base.errors import ErrorCode
from korvet.cluster.registration import partition_rows
from korvet.context import Context
from korvet.security.acl import ResourceType
from korvet.topics.lifecycle import check_topic_name
from korvet.topics.table import Topic
from korvet.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

MOST_PARTITIONS = 2000


async def describe_topic_partitions(
    request: DescribeTopicPartitionsRequest, context: Context
) -> DescribeTopicPartitionsResponse:
    names = sorted({row.name for row in request.topics})
    cursor = request.cursor
    if cursor and (cursor.partition_index < 0 or (names and cursor.topic_name not in names)):
        return DescribeTopicPartitionsResponse(
            topics=[_refusal(name, ErrorCode.INVALID_REQUEST, context) for name in names]
        )
    found, missing = await _topics(names, context)
    if cursor:
        found = [topic for topic in found if topic.name >= cursor.topic_name]
        missing = [row for row in missing if (row.name or "") >= cursor.topic_name]
    room = max(1, min(request.response_partition_limit, MOST_PARTITIONS))
    rows: list[DescribeTopicPartitionsResponseTopic] = []
    for topic in found:
        first = cursor.partition_index if cursor and cursor.topic_name == topic.name else 0
        if room <= 0:
            return _page(rows, Cursor(topic_name=topic.name, partition_index=first))
        last = min(topic.partitions, first + room)
        rows.append(_describe(topic, range(first, last), context))
        room -= max(0, last - first)
        if last < topic.partitions:
            return _page(rows, Cursor(topic_name=topic.name, partition_index=last))
    return _page(rows + missing, None)


async def _topics(
    names: list[str], context: Context
) -> tuple[list[Topic], list[DescribeTopicPartitionsResponseTopic]]:
    """Return the requested topics that exist, and the error rows of the others."""
    if not names:
        every = await context.services.offsets_view.listed(await context.topics.all())
        return [topic for topic in every if context.may_describe(topic.name, audit=False)], []
    found, missing = [], []
    for name in names:
        if not context.may_describe(name):
            missing.append(_refusal(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, context))
            continue
        topic = await context.topics.get_readable(name)
        if topic is not None:
            found.append(topic)
        elif check_topic_name(name, reserved=True):
            missing.append(_refusal(name, ErrorCode.INVALID_TOPIC_EXCEPTION, context))
        else:
            missing.append(_refusal(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, context))
    return found, missing


def _page(
    rows: list[DescribeTopicPartitionsResponseTopic], cursor: Cursor | None
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(topics=rows, next_cursor=cursor)


def _describe(
    topic: Topic, numbers: range, context: Context
) -> DescribeTopicPartitionsResponseTopic:
    nodes = context.services.registration.nodes(context.session.listener)
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.uuid,
        is_internal=context.topics.is_view(topic),
        partitions=partition_rows(
            DescribeTopicPartitionsResponsePartition, numbers, nodes, context.services.epochs.epoch
        ),
        topic_authorized_operations=context.authorized_operations(ResourceType.TOPIC, topic.name),
    )


def _refusal(name: str, error: ErrorCode, context: Context) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=error,
        name=name,
        topic_authorized_operations=context.authorized_operations(
            ResourceType.TOPIC, name, asked=error != ErrorCode.TOPIC_AUTHORIZATION_FAILED
        ),
    )
