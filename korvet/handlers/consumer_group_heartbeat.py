"""ConsumerGroupHeartbeat (key 68), versions 0-1. A member lives, and learns what it may hold.

Behaviour
- the broker assigns (uniform or range, what most members ask for); a member first gives up what is
  another's now, then its epoch moves on, then it gets what others have given up
- INVALID_REQUEST (empty group id, no topics or no timeout when joining), UNSUPPORTED_ASSIGNOR,
  INVALID_REGULAR_EXPRESSION, GROUP_ID_NOT_FOUND for a classic group with members,
  UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, UNRELEASED_INSTANCE_ID, FENCED_INSTANCE_ID,
  GROUP_MAX_SIZE_REACHED
- a member that is silent for its session timeout, or slow to give something up, is removed by the
  next heartbeat of any other
Versions
- v1 the member chooses its id, patterns
Left out
- online migration of a classic group with members; racks in assignments
"""

import re
import uuid

from korvet.consuming import Rows, pack, topics_for
from korvet.context import Context
from korvet.errors import ErrorCode
from korvet.scripts import group as scripts
from korvet.scripts.group import ConsumeReply
from korvet.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

ASSIGNORS = ("uniform", "range")


async def consumer_group_heartbeat(
    request: ConsumerGroupHeartbeatRequest, context: Context
) -> ConsumerGroupHeartbeatResponse:
    interval = context.settings.integer("group.consumer.heartbeat.interval.ms")
    error, reason = _refused(request)
    if error:
        return _refusal(error, interval, reason)
    member_id = request.member_id or str(uuid.uuid4())
    reply = await _beat(request, member_id, context)
    if reply.error:
        return _refusal(ErrorCode(reply.error), interval)
    return ConsumerGroupHeartbeatResponse(
        error_code=ErrorCode.NONE,
        member_id=member_id,
        member_epoch=reply.epoch,
        heartbeat_interval_ms=interval,
        assignment=_assignment(reply.assignment) if reply.told else None,
    )


def _refused(request: ConsumerGroupHeartbeatRequest) -> tuple[ErrorCode, str | None]:
    joins = request.member_epoch == 0
    subscribes = request.subscribed_topic_names is not None or request.subscribed_topic_regex
    if not request.group_id or (not request.member_id and not joins):
        return ErrorCode.INVALID_REQUEST, "A group id and a member id are needed."
    if joins and (request.rebalance_timeout_ms < 0 or not subscribes):
        return ErrorCode.INVALID_REQUEST, "Whoever joins names its timeout and its topics."
    if request.server_assignor is not None and request.server_assignor not in ASSIGNORS:
        return ErrorCode.UNSUPPORTED_ASSIGNOR, f"There is {' and '.join(ASSIGNORS)}."
    try:
        re.compile(request.subscribed_topic_regex or "")
    except re.error as wrong:
        return ErrorCode.INVALID_REGULAR_EXPRESSION, str(wrong)
    return ErrorCode.NONE, None


async def _beat(
    request: ConsumerGroupHeartbeatRequest, member_id: str, context: Context
) -> ConsumeReply:
    rows: Rows = []
    known = registered = 0
    await context.topics.all()
    while True:
        version = context.topics.mark
        reply = await context.store.run(
            scripts.consume(
                context.keys,
                request.group_id,
                member=member_id,
                epoch=request.member_epoch,
                instance=request.instance_id or "",
                rack=request.rack_id or "",
                client_id=context.client_id or "",
                client_host=f"/{context.client_host}",
                session_ms=context.settings.integer("group.consumer.session.timeout.ms"),
                rebalance_ms=request.rebalance_timeout_ms,
                assignor=request.server_assignor or "",
                max_size=context.settings.integer("group.consumer.max.size"),
                registered=registered,
                subscribes=int(
                    request.subscribed_topic_names is not None
                    or request.subscribed_topic_regex is not None
                ),
                names=pack(sorted(request.subscribed_topic_names or ())),
                regex=request.subscribed_topic_regex or "",
                owns=int(request.topic_partitions is not None),
                owned=pack(
                    f"{row.topic_id.hex}:{number}"
                    for row in request.topic_partitions or ()
                    for number in row.partitions
                ),
                version=version,
                known=known,
                rows=rows,
            )
        )
        if reply.error == ErrorCode.COORDINATOR_NOT_AVAILABLE and not registered:
            await context.store.run(scripts.register(context.keys, group=request.group_id))
            registered = 1
        elif reply.ask:
            rows, known = await topics_for(reply, context), 1
        else:
            return reply


def _assignment(partitions: list[bytes]) -> Assignment:
    by_topic: dict[str, list[int]] = {}
    for partition in partitions:
        topic_id, _, number = partition.decode().partition(":")
        by_topic.setdefault(topic_id, []).append(int(number))
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=uuid.UUID(hex=topic_id), partitions=sorted(numbers))
            for topic_id, numbers in sorted(by_topic.items())
        ]
    )


def _refusal(
    error: ErrorCode, interval: int, reason: str | None = None
) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        error_code=error,
        error_message=reason or error.message,
        member_epoch=0,
        heartbeat_interval_ms=interval,
    )
