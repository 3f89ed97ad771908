"""Heartbeat (key 12): renew the session of a classic group's member."""

from typing import Annotated

from korvet.wire.schema import Field, Message, i16, i32, request, response


@request(key=12, versions=(0, 4), flexible=4)
class HeartbeatRequest(Message):
    group_id: str
    generation_id: i32
    member_id: str
    group_instance_id: Annotated[str | None, Field(since=3)] = None


@response(HeartbeatRequest)
class HeartbeatResponse(Message):
    throttle_time_ms: Annotated[i32, Field(since=1)] = 0
    error_code: i16 = 0
