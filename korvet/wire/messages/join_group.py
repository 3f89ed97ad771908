"""JoinGroup (key 11): join a classic group, and get its next generation.

From 4 on a new member is first answered with a new member id (MEMBER_ID_REQUIRED).
"""

from typing import Annotated

from korvet.wire.schema import Field, Message, i16, i32, request, response


class JoinGroupRequestProtocol(Message):
    name: str
    metadata: bytes


@request(key=11, versions=(0, 9), flexible=6)
class JoinGroupRequest(Message):
    group_id: str
    session_timeout_ms: i32
    rebalance_timeout_ms: Annotated[i32, Field(since=1)] = -1
    """Time in which members must rejoin; in version 0 the session timeout."""
    member_id: str
    group_instance_id: Annotated[str | None, Field(since=5)] = None
    protocol_type: str
    protocols: list[JoinGroupRequestProtocol]
    reason: Annotated[str | None, Field(since=8)] = None


class JoinGroupResponseMember(Message):
    member_id: str
    group_instance_id: Annotated[str | None, Field(since=5)] = None
    metadata: bytes


@response(JoinGroupRequest)
class JoinGroupResponse(Message):
    throttle_time_ms: Annotated[i32, Field(since=2)] = 0
    error_code: i16 = 0
    generation_id: i32 = -1
    protocol_type: Annotated[str | None, Field(since=7)] = None
    protocol_name: Annotated[str | None, Field(nullable_since=7)]
    """From 7 on null where none was chosen; before, the empty string."""
    leader: str = ""
    skip_assignment: Annotated[bool, Field(since=9)] = False
    """The leader keeps the current assignment: it is static and has rejoined."""
    member_id: str
    members: list[JoinGroupResponseMember] = []
    """Only for the leader."""
