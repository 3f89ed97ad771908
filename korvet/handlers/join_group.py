"""JoinGroup. Join the group, and return the next generation.

Behaviour
- in order: INVALID_GROUP_ID, INVALID_SESSION_TIMEOUT, UNKNOWN_MEMBER_ID for an id in a group that
  does not exist, GROUP_MAX_SIZE_REACHED, INCONSISTENT_GROUP_PROTOCOL, FENCED_INSTANCE_ID and
  UNKNOWN_MEMBER_ID for an id that is not a member's, MEMBER_ID_REQUIRED
- INCONSISTENT_GROUP_PROTOCOL for more than 100 protocols too; GROUP_MAX_SIZE_REACHED also if the
  members' protocols are larger than group.max.bytes, or as many ids as group.max.size were handed
  out and not used
- the response waits until all members have joined or the longest rebalance timeout has passed; an
  empty group waits group.initial.rebalance.delay.ms for more members
- of a protocol that is listed twice the last metadata is used; an empty group.instance.id is none
- a follower that joins again in a generation it is part of gets the same response; a leader that
  does so in a stable group begins a rebalance
- a static member that joins without its id replaces its former one, whose id is fenced. In a stable
  group this begins no rebalance, as long as the protocol stays the same
- a new group takes two round trips: registration, then the join
Versions
- v1 rebalance timeout, v4 MEMBER_ID_REQUIRED, v5 group.instance.id, v7 protocol type and a null
  protocol in error responses, v9 skip_assignment
"""

import uuid

from korvet.base.errors import ErrorCode
from korvet.context import Context
from korvet.scripts.call import Call
from korvet.scripts.calls.group import JoinReply
from korvet.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)

MAX_PROTOCOLS = 100
"""Protocols of a member: the group has a count of each."""


async def join_group(request: JoinGroupRequest, context: Context) -> JoinGroupResponse:
    settings = context.settings
    if not request.group_id:
        return _error(ErrorCode.INVALID_GROUP_ID, request.member_id, context.version)
    shortest = settings.integer("group.min.session.timeout.ms")
    longest = settings.integer("group.max.session.timeout.ms")
    if not shortest <= request.session_timeout_ms <= longest:
        return _error(ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id, context.version)
    instance = request.group_instance_id or ""
    protocols = {row.name: row.metadata for row in request.protocols}
    if len(protocols) > MAX_PROTOCOLS:
        return _error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id, context.version)
    fresh_id = f"{instance or context.client_id or ''}-{uuid.uuid4()}"

    def make(is_registered: int) -> Call[JoinReply]:
        return context.keys.group(request.group_id).join(
            protocols.items(),
            member=request.member_id,
            fresh_id=fresh_id,
            instance=instance,
            client_id=context.client_id or "",
            client_host=f"/{context.client_host}",
            session_ms=request.session_timeout_ms,
            rebalance_ms=_rebalance_ms(request),
            protocol_type=request.protocol_type,
            require_member_id=int(context.version >= 4),
            skip=int(context.version >= 9),
            is_registered=is_registered,
            delay_ms=settings.integer("group.initial.rebalance.delay.ms"),
            max_size=settings.integer("group.max.size"),
            max_bytes=settings.integer("group.max.bytes"),
        )

    reply = await context.services.groups.join(request.group_id, instance, make)
    if reply.error:
        return _error(ErrorCode(reply.error), reply.member.decode(), context.version)
    return _response(reply)


def _rebalance_ms(request: JoinGroupRequest) -> int:
    wanted = request.rebalance_timeout_ms
    return wanted if wanted >= 0 else request.session_timeout_ms


def _response(reply: JoinReply) -> JoinGroupResponse:
    rows = reply.members
    return JoinGroupResponse(
        generation_id=reply.generation,
        protocol_type=reply.protocol_type.decode(),
        protocol_name=reply.protocol.decode(),
        leader=reply.leader.decode(),
        skip_assignment=bool(reply.skip),
        member_id=reply.member.decode(),
        members=[
            JoinGroupResponseMember(
                member_id=member.decode(),
                group_instance_id=instance.decode() or None,
                metadata=metadata,
            )
            for member, instance, metadata in zip(rows[::3], rows[1::3], rows[2::3], strict=True)
        ],
    )


def _error(error: ErrorCode, member_id: str, version: int) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=error, protocol_name=None if version >= 7 else "", member_id=member_id
    )
