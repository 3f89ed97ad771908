"""SyncGroup (key 14): the leader sends the assignment, each member gets its part of it."""

from typing import Annotated

from korvet.wire.schema import Field, Message, i16, i32, request, response


class SyncGroupRequestAssignment(Message):
    member_id: str
    assignment: bytes


@request(key=14, versions=(0, 5), flexible=4)
class SyncGroupRequest(Message):
    group_id: str
    generation_id: i32
    member_id: str
    group_instance_id: Annotated[str | None, Field(since=3)] = None
    protocol_type: Annotated[str | None, Field(since=5)] = None
    protocol_name: Annotated[str | None, Field(since=5)] = None
    assignments: list[SyncGroupRequestAssignment]


@response(SyncGroupRequest)
class SyncGroupResponse(Message):
    throttle_time_ms: Annotated[i32, Field(since=1)] = 0
    error_code: i16 = 0
    protocol_type: Annotated[str | None, Field(since=5)] = None
    protocol_name: Annotated[str | None, Field(since=5)] = None
    assignment: bytes = b""
