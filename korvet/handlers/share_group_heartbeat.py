"""ShareGroupHeartbeat. Renew a share group member's session (KIP-932).

Behaviour
- the broker assigns by the assignor `simple`, as Kafka does: if there are more members than
  partitions, a partition has several members; a member gets a new assignment at once
- while a group is not stable, members get a shorter heartbeat interval: 500 ms, or 5 ms per member
- INVALID_REQUEST for an empty group id, a member id that is empty or longer than 36 characters, and
  for a join without topic names
- GROUP_ID_NOT_FOUND for a group of another type, and without epoch 0 for one that does not exist;
  UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH; GROUP_MAX_SIZE_REACHED (group.share.max.size,
  group.subscription.max.*) with a sentence
- a member that sends no heartbeat within its session timeout is removed; records that it has
  acquired stay locked until their own deadline
- a share group is kept until it is deleted, even without members
"""

from korvet.base.errors import ErrorCode
from korvet.context import Context
from korvet.groups.assignment import assignment_of
from korvet.groups.modern import JOIN, GroupLimits, Heartbeat, blank_field, reason_of
from korvet.groups.share_group import ShareGroupConfig, share_group_config
from korvet.scripts.calls.group import ShareHeartbeatReply
from korvet.wire.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

LEAVE = -1
"""The member epoch of a member that leaves."""
LONGEST_MEMBER_ID = 36


async def share_group_heartbeat(
    request: ShareGroupHeartbeatRequest, context: Context
) -> ShareGroupHeartbeatResponse:
    reason = _invalid(request)
    if reason:
        return ShareGroupHeartbeatResponse.of(ErrorCode.INVALID_REQUEST, reason)
    limits = GroupLimits.of(context.settings)
    names = request.subscribed_topic_names
    reason = limits.refusal(names, 0, request.rack_id, context.client_id)
    if reason:
        return ShareGroupHeartbeatResponse.of(ErrorCode.GROUP_MAX_SIZE_REACHED, reason)
    config = share_group_config(context.services.configs, context.settings, request.group_id)
    reply = await _heartbeat(request, config, context)
    if reply.error:
        return ShareGroupHeartbeatResponse.of(ErrorCode(reply.error), reason_of(reply.error))
    interval = config.heartbeat_interval_ms if request.member_epoch >= 0 else 0
    return ShareGroupHeartbeatResponse(
        member_id=request.member_id,
        member_epoch=reply.epoch,
        heartbeat_interval_ms=min(interval, reply.next_heartbeat_ms or interval),
        assignment=assignment_of(reply.assignment) if reply.has_assignment else None,
    )


def _invalid(request: ShareGroupHeartbeatRequest) -> str | None:
    """Return why the request is invalid, None if it is not."""
    if not 0 < len(request.member_id) <= LONGEST_MEMBER_ID:
        return f"The member id must have from 1 to {LONGEST_MEMBER_ID} characters."
    reason = blank_field(
        member_id=request.member_id, group_id=request.group_id, rack=request.rack_id
    )
    if reason:
        return reason
    if request.member_epoch == JOIN and not request.subscribed_topic_names:
        return "Topic names are required when joining."
    if request.member_epoch < LEAVE:
        return f"Invalid member epoch {request.member_epoch}."
    return None


async def _heartbeat(
    request: ShareGroupHeartbeatRequest, config: ShareGroupConfig, context: Context
) -> ShareHeartbeatReply:
    topics = context.topics
    limits = GroupLimits.of(context.settings)
    heartbeat = Heartbeat(context.services.groups, topics, limits, lambda: topics.cached_version)
    client = (context.client_id or "", f"/{context.client_host}")
    return await heartbeat.run_share(request, context.settings, client, config)
