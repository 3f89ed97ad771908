"""DescribeGroups (key 15): state, protocol and members of classic groups.

From 6 on a group that does not exist is GROUP_ID_NOT_FOUND, before that it is "Dead".
"""

from typing import Annotated

from korvet.wire.schema import Field, Message, i16, i32, request, response


@request(key=15, versions=(0, 6), flexible=5)
class DescribeGroupsRequest(Message):
    groups: list[str]
    include_authorized_operations: Annotated[bool, Field(since=3)] = False


class DescribedGroupMember(Message):
    member_id: str
    group_instance_id: Annotated[str | None, Field(since=4)] = None
    client_id: str
    client_host: str
    member_metadata: bytes
    member_assignment: bytes


class DescribedGroup(Message):
    error_code: i16 = 0
    error_message: Annotated[str | None, Field(since=6)] = None
    group_id: str
    group_state: str
    protocol_type: str = ""
    protocol_data: str = ""
    members: list[DescribedGroupMember] = []
    authorized_operations: Annotated[i32, Field(since=3)] = -2147483648
    """A bit field; the least number if it was not asked for."""


@response(DescribeGroupsRequest)
class DescribeGroupsResponse(Message):
    throttle_time_ms: Annotated[i32, Field(since=1)] = 0
    groups: list[DescribedGroup]
