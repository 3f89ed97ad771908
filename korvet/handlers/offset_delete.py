"""OffsetDelete. Delete a group's committed offsets of some partitions.

Behaviour
- INVALID_GROUP_ID, GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP if it has members that are neither consumers
  nor Kafka Streams
- per topic: UNKNOWN_TOPIC_OR_PARTITION, GROUP_SUBSCRIBED_TO_TOPIC (for any topic, if a member's
  subscription is malformed)
"""

from korvet.base.errors import ErrorCode
from korvet.base.name_pattern import compile_pattern
from korvet.context import Context
from korvet.groups.description import CLASSIC, CONSUMER, SHARE, STREAMS, Group, describe_any
from korvet.scripts.call import Signal
from korvet.topics.lifecycle import Refused
from korvet.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from korvet.wire.structs import PartitionError, TopicErrors


async def offset_delete(request: OffsetDeleteRequest, context: Context) -> OffsetDeleteResponse:
    if not request.group_id:
        return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    while True:
        try:
            group = await describe_any(context.services.groups, request.group_id, always=True)
        except Refused as refused:
            return OffsetDeleteResponse(error_code=refused.error)
        if group.type == SHARE:
            return OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND)
        has_others = group.type == CLASSIC and group.protocol_type not in (CONSUMER, STREAMS)
        if group.state != "Empty" and has_others:
            return OffsetDeleteResponse(error_code=ErrorCode.NON_EMPTY_GROUP)
        subscribed = group.subscribed()
        patterns = [compile_pattern(text) for text in {row.regex for row in group.members} if text]
        if subscribed is not None and patterns:
            topics = [topic.name for topic in await context.topics.all()]
            subscribed |= {name for name in topics if any(one.matches(name) for one in patterns)}
        error, answer = await _delete(request, group, subscribed, context)
        if error != Signal.GROUP_CHANGED:
            return OffsetDeleteResponse(error_code=ErrorCode(error)) if error else answer


async def _delete(
    request: OffsetDeleteRequest,
    group: Group,
    subscribed: set[str] | None,
    context: Context,
) -> tuple[int, OffsetDeleteResponse]:
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
            rows.append(PartitionError(partition_index=part.partition_index, error_code=error))
        answers.append(TopicErrors(name=asked.name, partitions=rows))
    replies = await context.services.groups.run_rows(
        request.group_id,
        fields,
        lambda some, _: context.keys.group(request.group_id).delete_offsets(
            some, state=group.state, generation=group.epoch
        ),
    )
    return replies[-1].error, OffsetDeleteResponse(topics=answers)
