"""AlterShareGroupOffsets. Move an empty share group to offsets (KIP-932).

Behaviour
- the group is created if it does not exist; all its records of the partition become unread
- INVALID_GROUP_ID for an empty id, GROUP_ID_NOT_FOUND for a group of another type, NON_EMPTY_GROUP
  for one with members
- UNKNOWN_TOPIC_OR_PARTITION per partition; offset -1: the group starts where its
  share.auto.offset.reset says
"""

from collections.abc import Mapping

from korvet.base.errors import ErrorCode
from korvet.context import Context
from korvet.topics.table import Topic
from korvet.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponseTopic,
)
from korvet.wire.schema import ZERO_UUID
from korvet.wire.structs import PartitionErrorMessage

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def alter_share_group_offsets(
    request: AlterShareGroupOffsetsRequest, context: Context
) -> AlterShareGroupOffsetsResponse:
    if not request.group_id:
        return AlterShareGroupOffsetsResponse.of(ErrorCode.INVALID_GROUP_ID)
    topics = {row.topic_name: await context.topics.get(row.topic_name) for row in request.topics}
    places = _places(request.topics, topics)
    error, errors = await context.services.share_offsets.alter(request.group_id, places)
    if error:
        return AlterShareGroupOffsetsResponse.of(error)
    return AlterShareGroupOffsetsResponse(
        responses=[_topic(row, topics[row.topic_name], errors) for row in request.topics]
    )


def _places(
    rows: list[AlterShareGroupOffsetsRequestTopic], topics: Mapping[str, Topic | None]
) -> list[tuple[Topic, int, int]]:
    """Return the offsets of partitions that exist; the last one of a partition wins."""
    found: dict[tuple[str, int], tuple[Topic, int, int]] = {}
    for row in rows:
        topic = topics[row.topic_name]
        if topic is None:
            continue
        for part in row.partitions:
            number = part.partition_index
            if 0 <= number < topic.partitions:
                found[topic.name, number] = (topic, number, part.start_offset)
    return list(found.values())


def _topic(
    row: AlterShareGroupOffsetsRequestTopic,
    topic: Topic | None,
    errors: Mapping[tuple[str, int], ErrorCode],
) -> AlterShareGroupOffsetsResponseTopic:
    partitions = []
    for part in row.partitions:
        error = errors.get((row.topic_name, part.partition_index), UNKNOWN)
        partitions.append(
            PartitionErrorMessage(
                partition_index=part.partition_index,
                error_code=error,
                error_message=error.message if error else None,
            )
        )
    return AlterShareGroupOffsetsResponseTopic(
        topic_name=row.topic_name,
        topic_id=ZERO_UUID if topic is None else topic.uuid,
        partitions=partitions,
    )
