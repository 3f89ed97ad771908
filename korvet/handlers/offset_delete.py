"""OffsetDelete (key 47), version 0. Forget a group's offsets of some partitions.

Behaviour
- INVALID_GROUP_ID, GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP while its members are no consumers
- per topic: UNKNOWN_TOPIC_OR_PARTITION, GROUP_SUBSCRIBED_TO_TOPIC (of any topic, when
  a member's subscription cannot be read)
"""

from korvet.context import Context
from korvet.errors import ErrorCode
from korvet.groups.consumer_group import CELLS, unpack
from korvet.groups.consumer_protocol import topics_of
from korvet.re2.matcher import compiled
from korvet.scripts import group as scripts
from korvet.scripts.group import DescribeReply
from korvet.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

CONSUMER = b"consumer"
NEWER = b"consumer"


async def offset_delete(request: OffsetDeleteRequest, context: Context) -> OffsetDeleteResponse:
    if not request.group_id:
        return _refusal(ErrorCode.INVALID_GROUP_ID)
    while True:
        seen = await context.services.groups.run(
            request.group_id, lambda _: scripts.describe(context.keys, request.group_id, full=2)
        )
        if seen.error:
            return _refusal(ErrorCode(seen.error))
        if seen.state != b"Empty" and seen.protocol_type != CONSUMER:
            return _refusal(ErrorCode.NON_EMPTY_GROUP)
        subscribed: set[str] | None = set()
        if seen.type == NEWER:
            subscribed = await _subscribed(request.group_id, context)
        elif seen.protocol_type == CONSUMER:
            subscribed = topics_of(seen.members[4::6])
        error, answer = await _delete(request, seen, subscribed, context)
        if error is not ErrorCode.CONCURRENT_TRANSACTIONS:
            return _refusal(error) if error else answer


async def _subscribed(group_id: str, context: Context) -> set[str]:
    """What members of the newer protocol name; a pattern subscribes to all that it matches."""
    reply = await context.services.groups.run(
        group_id, lambda _: scripts.consumer_describe(context.keys, group_id)
    )
    names = {name for packed in reply.members[6::CELLS] for name in unpack(packed)}
    patterns = [compiled(text.decode()) for text in {*reply.members[7::CELLS]} if text]
    topics = await context.topics.all() if patterns else ()
    return names | {
        topic.name for topic in topics if any(one.matches(topic.name) for one in patterns)
    }


async def _delete(
    request: OffsetDeleteRequest,
    seen: DescribeReply,
    subscribed: set[str] | None,
    context: Context,
) -> tuple[ErrorCode, OffsetDeleteResponse]:
    fields: list[str] = []
    answers = []
    for asked in request.topics:
        topic = await context.topics.get(asked.name)
        rows = []
        for part in asked.partitions:
            error = ErrorCode.NONE
            if topic is None or not 0 <= part.partition_index < topic.partitions:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif subscribed is None or asked.name in subscribed:
                error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            else:
                fields.append(context.keys.partition(asked.name, part.partition_index).stream)
            rows.append(
                OffsetDeleteResponsePartition(
                    partition_index=part.partition_index, error_code=error
                )
            )
        answers.append(OffsetDeleteResponseTopic(name=asked.name, partitions=rows))
    error = await context.services.groups.forget(
        request.group_id, fields, seen.state.decode(), seen.generation
    )
    return error, OffsetDeleteResponse(error_code=ErrorCode.NONE, topics=answers)


def _refusal(error: ErrorCode) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=error, topics=[])
