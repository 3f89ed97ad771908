"""LeaveGroup (key 13): remove members of a group: one up to version 2, several from 3 on."""

from typing import Annotated

from korvet.wire.schema import Field, Message, i16, i32, request, response


class MemberIdentity(Message):
    member_id: str
    """May be empty if `group_instance_id` names a static member."""
    group_instance_id: str | None = None
    reason: Annotated[str | None, Field(since=5)] = None


@request(key=13, versions=(0, 5), flexible=4)
class LeaveGroupRequest(Message):
    group_id: str
    member_id: Annotated[str, Field(until=2)] = ""
    members: Annotated[list[MemberIdentity], Field(since=3)] = []


class MemberResponse(Message):
    member_id: str
    group_instance_id: str | None
    error_code: i16 = 0


@response(LeaveGroupRequest)
class LeaveGroupResponse(Message):
    throttle_time_ms: Annotated[i32, Field(since=1)] = 0
    error_code: i16 = 0
    members: Annotated[list[MemberResponse], Field(since=3)] = []
