"""ConsumerGroupHeartbeat (key 68), versions 0-1. A member lives, and learns what it may hold.

Behaviour
- the broker assigns (uniform or range, what most members ask for); a member first gives up what is
  another's now, then its epoch moves on, then it gets what others have given up
- while a group settles, members are told to come again sooner than the heartbeat interval says:
  after 500 ms, or 5 ms a member
- where heartbeats are frequent one that says nothing new waits up to 20 ms to leave with others
- a large group's targets are made for many joins at once, so its assignment epoch may lag
- patterns are RE2's and match whole names
- INVALID_REQUEST (empty group id, no topics or no timeout when joining), UNSUPPORTED_ASSIGNOR,
  INVALID_REGULAR_EXPRESSION, GROUP_ID_NOT_FOUND for a classic group with members,
  UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, UNRELEASED_INSTANCE_ID, FENCED_INSTANCE_ID,
  GROUP_MAX_SIZE_REACHED
- a member that is silent for its session timeout, or slow to give something up, is removed, whether
  or not another one is heard of
Versions
- v1 the member chooses its id, patterns
Left out
- online migration of a classic group with members; racks in assignments
"""

import uuid

import msgspec

from korvet.context import Context
from korvet.errors import ErrorCode
from korvet.groups.assignment import decode_assignment, encode_assignment
from korvet.groups.consumer_group import Rows, pack, timing, topics_for, wants
from korvet.groups.stream_reads import note_reader, readers
from korvet.re2.matcher import BadPattern, compiled
from korvet.scripts import group as scripts
from korvet.scripts.call import Call
from korvet.scripts.group import ConsumerHeartbeatReply
from korvet.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

ASSIGNORS = ("uniform", "range")
AWAY = -2
SESSION, INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


async def consumer_group_heartbeat(
    request: ConsumerGroupHeartbeatRequest, context: Context
) -> ConsumerGroupHeartbeatResponse:
    if context.version == 0 and not request.member_id and request.member_epoch == 0:
        request = msgspec.structs.replace(request, member_id=str(uuid.uuid4()))
    error, reason = _refused(request)
    if error:
        return _refusal(error, reason)
    if _says_nothing_new(request):
        async with context.services.groups.beats.burst():
            reply = await _beat(request, context)
    else:
        reply = await _beat(request, context)
    if reply.error:
        return _refusal(ErrorCode(reply.error))
    interval = 0
    if request.member_epoch < 0 and context.services.stream_readers:
        readers(context).forget(context.client_id or "", request.group_id, request.member_id)
    elif request.member_epoch >= 0:
        note_reader(context, request.group_id, request.member_id, reply.epoch)
        interval = timing(context, request.group_id, INTERVAL)
    return ConsumerGroupHeartbeatResponse(
        error_code=ErrorCode.NONE,
        member_id=request.member_id,
        member_epoch=reply.epoch,
        heartbeat_interval_ms=min(interval, reply.next_heartbeat_ms or interval),
        assignment=_assignment(reply.assignment) if reply.has_assignment else None,
    )


def _refused(request: ConsumerGroupHeartbeatRequest) -> tuple[ErrorCode, str | None]:
    for value, name in (
        (request.group_id, "group id"),
        (request.member_id, "member id"),
        (request.instance_id, "instance id"),
        (request.rack_id, "rack"),
    ):
        if value is not None and not value.strip():
            return ErrorCode.INVALID_REQUEST, f"The {name} must not be empty."
    unfit = _joins_badly(request) if request.member_epoch == 0 else _goes_badly(request)
    if unfit:
        return ErrorCode.INVALID_REQUEST, unfit
    if request.server_assignor is not None and request.server_assignor not in ASSIGNORS:
        return ErrorCode.UNSUPPORTED_ASSIGNOR, f"There is {' and '.join(ASSIGNORS)}."
    try:
        compiled(request.subscribed_topic_regex or "")
    except BadPattern as wrong:
        return ErrorCode.INVALID_REGULAR_EXPRESSION, str(wrong)
    return ErrorCode.NONE, None


def _says_nothing_new(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the member only lives: then it may wait a moment for others that do."""
    return (
        request.member_epoch > 0
        and request.topic_partitions is None
        and request.subscribed_topic_names is None
        and request.subscribed_topic_regex is None
    )


def _joins_badly(request: ConsumerGroupHeartbeatRequest) -> str | None:
    if request.rebalance_timeout_ms == -1:
        return "Whoever joins says how long it may take to give partitions up."
    if request.topic_partitions is None or request.topic_partitions:
        return "Whoever joins holds no partitions, and says so."
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        return "Whoever joins names its topics, or a pattern."
    return None


def _goes_badly(request: ConsumerGroupHeartbeatRequest) -> str | None:
    if request.member_epoch < AWAY:
        return f"There is no member epoch {request.member_epoch}."
    if request.member_epoch == AWAY and request.instance_id is None:
        return "Only a static member can go away and come back."
    return None


async def _beat(request: ConsumerGroupHeartbeatRequest, context: Context) -> ConsumerHeartbeatReply:
    rows: Rows = []
    asked = b""
    await context.topics.all()
    version = context.topics.mark

    def make(registered: int) -> Call[ConsumerHeartbeatReply]:
        return scripts.consumer_heartbeat(
            context.keys,
            request.group_id,
            member=request.member_id,
            epoch=request.member_epoch,
            instance=request.instance_id or "",
            rack=request.rack_id or "",
            client_id=context.client_id or "",
            client_host=f"/{context.client_host}",
            session_ms=timing(context, request.group_id, SESSION),
            rebalance_ms=request.rebalance_timeout_ms,
            assignor=request.server_assignor or "",
            max_size=context.settings.integer("group.consumer.max.size"),
            is_registered=registered,
            subscription_mask=(request.subscribed_topic_names is not None)
            + 2 * (request.subscribed_topic_regex is not None),
            names=pack(sorted(request.subscribed_topic_names or ())),
            regex=request.subscribed_topic_regex or "",
            has_owned=int(request.topic_partitions is not None),
            owned=encode_assignment(
                (row.topic_id.hex, row.partitions) for row in request.topic_partitions or ()
            ),
            version=version,
            resolved=asked,
            rows=rows,
        )

    while True:
        reply = await context.services.groups.run(request.group_id, make)
        if reply.error or not reply.need_topics:
            return reply
        # Who asked before may have asked a broker that has heard of more topics than this one.
        await context.topics.refresh()
        # Taken before the rows: those may be of a later table, never of an earlier one.
        version = context.topics.mark
        rows, asked = await topics_for(reply, context), wants(reply)


def _assignment(spelled: bytes) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=uuid.UUID(hex=topic_id), partitions=numbers)
            for topic_id, numbers in decode_assignment(spelled).items()
        ]
    )


def _refusal(error: ErrorCode, reason: str | None = None) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        error_code=error,
        error_message=reason or error.message,
        member_epoch=0,
        heartbeat_interval_ms=0,
    )
