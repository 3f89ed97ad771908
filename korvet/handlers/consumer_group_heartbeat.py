"""ConsumerGroupHeartbeat. Renew a member's session, return its assignment.

Behaviour
- the broker assigns (uniform or range, as most members ask): a member first revokes partitions,
  then its epoch advances, then it gets partitions that other members have revoked
- while a group is not stable, members get a shorter heartbeat interval: 500 ms, or 5 ms per member
- if heartbeats are frequent, one that only renews the session waits up to 20 ms and is sent with
  other ones
- the target assignment of a large group covers many joins, so its assignment epoch may lag
- patterns are RE2's and match whole names, of topics only that the member may describe; the group
  has one result for a pattern, by the rights of the member whose heartbeat finds it outdated
- INVALID_REQUEST (empty group id, no topics or no timeout when joining), UNSUPPORTED_ASSIGNOR,
  INVALID_REGULAR_EXPRESSION, GROUP_ID_NOT_FOUND for a classic group with members,
  UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, UNRELEASED_INSTANCE_ID, FENCED_INSTANCE_ID
- GROUP_MAX_SIZE_REACHED with a sentence: more members than group.consumer.max.size, or more topics,
  partitions or bytes than group.subscription.max.*
- a member that sends no heartbeat within its session timeout, or does not revoke within its
  rebalance timeout, is removed, even if no other request reaches the group
Versions
- v1 the member chooses its id, patterns
Left out
- online migration of a classic group with members; racks in assignments
"""

import uuid

import msgspec

from korvet.base.errors import ErrorCode
from korvet.base.name_pattern import BadPattern, compile_pattern
from korvet.context import Context
from korvet.groups.assignment import assignment_of
from korvet.groups.modern import (
    JOIN,
    GroupLimits,
    Heartbeat,
    blank_field,
    group_timeout_ms,
    invalid_epoch,
    reason_of,
)
from korvet.scripts.calls.group import ConsumerHeartbeatReply
from korvet.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

ASSIGNORS = ("uniform", "range")
SESSION, INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


async def consumer_group_heartbeat(
    request: ConsumerGroupHeartbeatRequest, context: Context
) -> ConsumerGroupHeartbeatResponse:
    if context.version == 0 and not request.member_id and request.member_epoch == JOIN:
        request = msgspec.structs.replace(request, member_id=str(uuid.uuid4()))
    error, reason = _validate(request)
    if not error:
        error, reason = _exceeds(request, context)
    if error:
        return ConsumerGroupHeartbeatResponse.of(error, reason)
    reply = await _heartbeat(request, context)
    if reply.error:
        return ConsumerGroupHeartbeatResponse.of(ErrorCode(reply.error), reason_of(reply.error))
    interval = 0
    stream_reads = context.services.stream_reads
    if request.member_epoch < 0:
        stream_reads.forget_member(context.client_id, request.group_id, request.member_id)
    else:
        stream_reads.note_member(
            context.client_id, request.group_id, request.member_id, reply.epoch
        )
        interval = _timeout_ms(request, context, INTERVAL)
    return ConsumerGroupHeartbeatResponse(
        member_id=request.member_id,
        member_epoch=reply.epoch,
        heartbeat_interval_ms=min(interval, reply.next_heartbeat_ms or interval),
        assignment=assignment_of(reply.assignment) if reply.has_assignment else None,
    )


def _validate(request: ConsumerGroupHeartbeatRequest) -> tuple[ErrorCode, str | None]:
    reason = blank_field(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.instance_id,
        rack=request.rack_id,
    ) or (
        _join_error(request)
        if request.member_epoch == JOIN
        else invalid_epoch(request.member_epoch, request.instance_id)
    )
    if reason:
        return ErrorCode.INVALID_REQUEST, reason
    if request.server_assignor is not None and request.server_assignor not in ASSIGNORS:
        supported = ", ".join(ASSIGNORS)
        reason = f"Unknown assignor {request.server_assignor!r}; supported: {supported}."
        return ErrorCode.UNSUPPORTED_ASSIGNOR, reason
    try:
        compile_pattern(request.subscribed_topic_regex or "")
    except BadPattern as wrong:
        return ErrorCode.INVALID_REGULAR_EXPRESSION, str(wrong)
    return ErrorCode.NONE, None


def _exceeds(
    request: ConsumerGroupHeartbeatRequest, context: Context
) -> tuple[ErrorCode, str | None]:
    owned = sum(len(row.partitions) for row in request.topic_partitions or ())
    words = (request.member_id, request.instance_id, request.rack_id, context.client_id)
    reason = GroupLimits.of(context.settings).refusal(
        request.subscribed_topic_names, owned, *words, request.subscribed_topic_regex
    )
    return ErrorCode.GROUP_MAX_SIZE_REACHED if reason else ErrorCode.NONE, reason


def _join_error(request: ConsumerGroupHeartbeatRequest) -> str | None:
    if request.rebalance_timeout_ms == -1:
        return "rebalance_timeout_ms is required when joining."
    if request.topic_partitions is None or request.topic_partitions:
        return "topic_partitions must be empty, and not null, when joining."
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        return "Topic names or a pattern are required when joining."
    return None


async def _heartbeat(
    request: ConsumerGroupHeartbeatRequest, context: Context
) -> ConsumerHeartbeatReply:
    heartbeat = Heartbeat(
        context.services.groups,
        context.topics,
        GroupLimits.of(context.settings),
        lambda: _topics_version(context),
        lambda name: context.may_describe(name, audit=False),
    )

    return await heartbeat.run_consumer(
        request,
        context.settings,
        (context.client_id or "", f"/{context.client_host}"),
        _timeout_ms(request, context, SESSION),
        prepare=lambda _: context.services.authorizer.refresh(),
    )


def _topics_version(context: Context) -> bytes:
    """Return the version of what patterns match: of the topics, and of the ACL rules if in use."""
    rules = context.services.authorizer.version
    return context.topics.cached_version + (b"/" + rules if rules is not None else b"")


def _timeout_ms(request: ConsumerGroupHeartbeatRequest, context: Context, name: str) -> int:
    return group_timeout_ms(context.services.configs, context.settings, request.group_id, name)
