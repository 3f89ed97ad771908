"""OffsetDelete. Delete a group's committed offsets of some partitions.

Behaviour
- INVALID_GROUP_ID, GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP if it has members that are neither consumers
  nor Kafka Streams
- per topic: UNKNOWN_TOPIC_OR_PARTITION, GROUP_SUBSCRIBED_TO_TOPIC (for any topic, if a member's
  subscription is malformed)
"""

from korvet.calls.group import DescribeReply
from korvet.context import Context
from korvet.errors import ErrorCode
from korvet.groups.consumer_group import CELLS, unpack
from korvet.groups.consumer_protocol import subscribed_topics
from korvet.groups.streams_group import decode_topology, input_topics
from korvet.name_pattern import compile_pattern
from korvet.scripts.signals import Signal
from korvet.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from korvet.wire.structs import PartitionError, TopicErrors

CONSUMER = b"consumer"
"""The protocol type of consumers, and the type of a KIP-848 group."""
STREAMS = b"streams"
"""The protocol type, and the type, of a streams group (KIP-1071)."""


async def offset_delete(request: OffsetDeleteRequest, context: Context) -> OffsetDeleteResponse:
    if not request.group_id:
        return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    while True:
        group = await context.services.groups.run(
            request.group_id, lambda _: context.keys.group(request.group_id).describe(full=2)
        )
        if group.error:
            return OffsetDeleteResponse(error_code=ErrorCode(group.error))
        if group.type == b"share":
            return OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND)
        if group.state != b"Empty" and group.protocol_type not in (CONSUMER, STREAMS):
            return OffsetDeleteResponse(error_code=ErrorCode.NON_EMPTY_GROUP)
        subscribed: set[str] | None = set()
        if group.type == CONSUMER:
            subscribed = await _subscribed(request.group_id, context)
        elif group.type == STREAMS and group.state != b"Empty":
            subscribed = await _inputs(request.group_id, context)
        elif group.protocol_type == CONSUMER:
            subscribed = subscribed_topics(group.members[4::6])
        error, answer = await _delete(request, group, subscribed, context)
        if error != Signal.GROUP_CHANGED:
            return OffsetDeleteResponse(error_code=ErrorCode(error)) if error else answer


async def _subscribed(group_id: str, context: Context) -> set[str]:
    """Return the topics that KIP-848 members subscribe to, by name and by pattern."""
    reply = await context.services.groups.run(
        group_id, lambda _: context.keys.group(group_id).consumer_describe(type="consumer")
    )
    names = {name for packed in reply.members[6::CELLS] for name in unpack(packed)}
    patterns = [compile_pattern(text.decode()) for text in {*reply.members[7::CELLS]} if text]
    topics = await context.topics.all() if patterns else ()
    return names | {
        topic.name for topic in topics if any(one.matches(topic.name) for one in patterns)
    }


async def _inputs(group_id: str, context: Context) -> set[str]:
    """Return the topics that the tasks of a streams group read."""
    reply = await context.services.groups.run(
        group_id, lambda _: context.keys.group(group_id).streams_describe()
    )
    inputs = input_topics(decode_topology(reply.topology))
    return {name for names in inputs.values() for name in names}


async def _delete(
    request: OffsetDeleteRequest,
    group: DescribeReply,
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
            some, state=group.state.decode(), generation=group.generation
        ),
    )
    return replies[-1].error, OffsetDeleteResponse(topics=answers)
