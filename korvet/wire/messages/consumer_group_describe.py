"""ConsumerGroupDescribe (key 69): state and members of consumer groups (KIP-848)."""

from typing import Annotated

from korvet.wire.schema import Field, Message, Response, i8, i16, i32, request, response, uuid


@request(key=69, versions=(0, 1), flexible=0)
class ConsumerGroupDescribeRequest(Message):
    group_ids: list[str]
    include_authorized_operations: bool


class TopicPartitions(Message):
    topic_id: uuid
    topic_name: str
    partitions: list[i32]


class Assignment(Message):
    topic_partitions: list[TopicPartitions]


class Member(Message):
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    member_epoch: i32
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]
    subscribed_topic_regex: str | None = None
    assignment: Assignment
    target_assignment: Assignment
    member_type: Annotated[i8, Field(since=1)] = -1
    """-1 unknown, 0 classic, 1 consumer."""


class GroupDescription(Message):
    """The first fields of a described group, of all types but `classic`."""

    error_code: i16 = 0
    error_message: str | None = None
    group_id: str
    group_state: str = ""
    group_epoch: i32 = 0
    assignment_epoch: i32 = 0


class DescribedGroup(GroupDescription):
    assignor_name: str = ""
    members: list[Member] = []
    authorized_operations: i32 = -2147483648
    """A bit field; the least number if it was not asked for."""


@response(ConsumerGroupDescribeRequest)
class ConsumerGroupDescribeResponse(Response):
    groups: list[DescribedGroup]
