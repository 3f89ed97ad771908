"""ShareAcknowledge. Acknowledge a member's acquired records (KIP-932).

Behaviour
- the share session of ShareFetch, epoch -1 closes it and releases the member's other records;
  INVALID_SHARE_SESSION_EPOCH for epoch 0
- types: 0 gap, 1 accept, 2 release, 3 reject, 4 renew, one for a range or one for each offset
- all of a partition's acknowledgements are done, or none; INVALID_RECORD_STATE for a record that
  the member has not acquired or whose lock has expired; INVALID_REQUEST above the records with a
  state, and for an invalid range or type, or ranges that do not ascend; offsets below the start
  offset are passed; UNKNOWN_TOPIC_OR_PARTITION if the group has no state in the partition
- a partition without acknowledgements is not in the response
- a released record is available again, after share.retry.backoff.ms if that is set; one that was
  delivered as often as the limit is archived
- a repetition of a request whose response was lost may get INVALID_RECORD_STATE
Versions
- v2 renewal of locks (KIP-1222)
"""

from uuid import UUID

from korvet.base.errors import ErrorCode
from korvet.context import Context
from korvet.fetch.sessions import CLOSE, OPEN, SessionError
from korvet.security.acl import Operation, ResourceType
from korvet.share.sessions import Targets
from korvet.wire.messages.share_acknowledge import (
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)


async def share_acknowledge(
    request: ShareAcknowledgeRequest, context: Context
) -> ShareAcknowledgeResponse:
    group, member = request.group_id, request.member_id
    if group is None or not member:
        return ShareAcknowledgeResponse.of(ErrorCode.INVALID_REQUEST)
    services, epoch = context.services, request.share_session_epoch
    if epoch == OPEN:
        return ShareAcknowledgeResponse.of(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
    try:
        session = services.share.sessions.take(group, member, epoch)
    except SessionError as failure:
        return ShareAcknowledgeResponse.of(failure.error)
    config = services.share.config(group)
    targets = Targets(
        context.topics, lambda name: context.allows(Operation.READ, ResourceType.TOPIC, name)
    )
    acknowledged = await services.share.acknowledger.acknowledge_each(
        session, config, targets, request.topics, renews=request.is_renew_ack
    )
    if epoch == CLOSE:
        await services.share.sessions.close(session)
    topics: dict[UUID, list[PartitionData]] = {}
    for (topic_id, partition), error in acknowledged:
        row = PartitionData(
            partition_index=partition,
            error_code=error,
            error_message=error.message if error else None,
        )
        topics.setdefault(topic_id, []).append(row)
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=config.record_lock_duration_ms,
        responses=[
            ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=rows)
            for topic_id, rows in topics.items()
        ],
    )
