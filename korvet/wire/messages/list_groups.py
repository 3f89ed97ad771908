"""ListGroups (key 16): all groups, or those of given states and types."""

from typing import Annotated

from korvet.wire.schema import Field, Message, i16, i32, request, response


@request(key=16, versions=(0, 5), flexible=3)
class ListGroupsRequest(Message):
    states_filter: Annotated[list[str], Field(since=4)] = []
    types_filter: Annotated[list[str], Field(since=5)] = []


class ListedGroup(Message):
    group_id: str
    protocol_type: str
    group_state: Annotated[str, Field(since=4)] = ""
    group_type: Annotated[str, Field(since=5)] = ""


@response(ListGroupsRequest)
class ListGroupsResponse(Message):
    throttle_time_ms: Annotated[i32, Field(since=1)] = 0
    error_code: i16 = 0
    groups: list[ListedGroup]
