"""OffsetDelete (key 47), version 0. Forget a group's offsets of some partitions.

Behaviour
- INVALID_GROUP_ID, GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP while its members are no consumers
- per topic: UNKNOWN_TOPIC_OR_PARTITION, GROUP_SUBSCRIBED_TO_TOPIC
"""

from korvet.context import Context
from korvet.coordinating import groups
from korvet.errors import ErrorCode
from korvet.scripts import group as scripts
from korvet.scripts.group import DescribeReply
from korvet.subscriptions import topics_of
from korvet.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

CONSUMER = b"consumer"


async def offset_delete(request: OffsetDeleteRequest, context: Context) -> OffsetDeleteResponse:
    if not request.group_id:
        return _refusal(ErrorCode.INVALID_GROUP_ID)
    while True:
        seen = await groups(context).run(
            request.group_id, lambda _: scripts.describe(context.keys, request.group_id, full=2)
        )
        if seen.error:
            return _refusal(ErrorCode(seen.error))
        if seen.state != b"Empty" and seen.protocol_type != CONSUMER:
            return _refusal(ErrorCode.NON_EMPTY_GROUP)
        error, answer = await _delete(request, seen, context)
        if error is not ErrorCode.CONCURRENT_TRANSACTIONS:
            return _refusal(error) if error else answer


async def _delete(
    request: OffsetDeleteRequest, seen: DescribeReply, context: Context
) -> tuple[ErrorCode, OffsetDeleteResponse]:
    subscribed = topics_of(seen.members[4::6])
    fields: list[str] = []
    answers = []
    for asked in request.topics:
        topic = await context.topics.get(asked.name)
        rows = []
        for part in asked.partitions:
            error = ErrorCode.NONE
            if topic is None or not 0 <= part.partition_index < topic.partitions:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif asked.name in subscribed:
                error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            else:
                fields.append(context.keys.partition(asked.name, part.partition_index).stream)
            rows.append(
                OffsetDeleteResponsePartition(
                    partition_index=part.partition_index, error_code=error
                )
            )
        answers.append(OffsetDeleteResponseTopic(name=asked.name, partitions=rows))
    error = await groups(context).forget(
        request.group_id, fields, seen.state.decode(), seen.generation
    )
    return error, OffsetDeleteResponse(error_code=ErrorCode.NONE, topics=answers)


def _refusal(error: ErrorCode) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=error, topics=[])
