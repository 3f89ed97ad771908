"""DeleteShareGroupOffsets. Delete an empty share group's offsets (KIP-932).

Behaviour
- the group starts in these topics again where its share.auto.offset.reset says
- INVALID_GROUP_ID for an empty id, GROUP_ID_NOT_FOUND for a group that does not exist or is of
  another type, NON_EMPTY_GROUP for one with members
- UNKNOWN_TOPIC_OR_PARTITION for a topic that does not exist or that the group has not read
"""

from korvet.base.errors import ErrorCode
from korvet.context import Context
from korvet.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from korvet.wire.schema import ZERO_UUID

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
NOT_READ = "The group has no offsets of this topic."


async def delete_share_group_offsets(
    request: DeleteShareGroupOffsetsRequest, context: Context
) -> DeleteShareGroupOffsetsResponse:
    if not request.group_id:
        return DeleteShareGroupOffsetsResponse.of(ErrorCode.INVALID_GROUP_ID)
    names = list(dict.fromkeys(row.topic_name for row in request.topics))
    error, deleted = await context.services.share_offsets.delete(request.group_id, names)
    if error:
        return DeleteShareGroupOffsetsResponse.of(error)
    return DeleteShareGroupOffsetsResponse(
        responses=[
            DeleteShareGroupOffsetsResponseTopic(
                topic_name=name,
                topic_id=deleted[name].uuid if name in deleted else ZERO_UUID,
                error_code=ErrorCode.NONE if name in deleted else UNKNOWN,
                error_message=None if name in deleted else NOT_READ,
            )
            for name in names
        ]
    )
