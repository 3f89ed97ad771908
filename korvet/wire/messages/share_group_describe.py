"""ShareGroupDescribe (key 77): state and members of share groups (KIP-932)."""

from korvet.wire.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    GroupDescription,
)
from korvet.wire.schema import Message, Response, i32, request, response


@request(key=77, versions=(1, 1), flexible=0)
class ShareGroupDescribeRequest(ConsumerGroupDescribeRequest):
    """The fields are those of a consumer group."""


class Member(Message):
    member_id: str
    rack_id: str | None = None
    member_epoch: i32
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]
    assignment: Assignment


class DescribedGroup(GroupDescription):
    assignor_name: str = ""
    members: list[Member] = []
    authorized_operations: i32 = -2147483648
    """A bit field; the least number if it was not asked for."""


@response(ShareGroupDescribeRequest)
class ShareGroupDescribeResponse(Response):
    groups: list[DescribedGroup]
