"""FindCoordinator (key 10): the broker that coordinates a group or a transactional id.

One key up to 3, several from 4 on. Share groups have a key type from 6 on.
"""

from typing import Annotated

from korvet.wire.schema import Field, Message, i8, i16, i32, request, response


@request(key=10, versions=(0, 6), flexible=3)
class FindCoordinatorRequest(Message):
    key: Annotated[str, Field(until=3)] = ""
    key_type: Annotated[i8, Field(since=1)] = 0
    """0 group, 1 transaction, 2 share."""
    coordinator_keys: Annotated[list[str], Field(since=4)] = []


class Coordinator(Message):
    key: str
    node_id: i32 = -1
    host: str = ""
    port: i32 = -1
    error_code: i16 = 0
    error_message: str | None = None


@response(FindCoordinatorRequest)
class FindCoordinatorResponse(Message):
    throttle_time_ms: Annotated[i32, Field(since=1)] = 0
    error_code: Annotated[i16, Field(until=3)] = 0
    error_message: Annotated[str | None, Field(since=1, until=3)] = None
    node_id: Annotated[i32, Field(until=3)] = 0
    host: Annotated[str, Field(until=3)] = ""
    port: Annotated[i32, Field(until=3)] = 0
    coordinators: Annotated[list[Coordinator], Field(since=4)] = []
