"""StreamsGroupDescribe (key 89): state, topology and members of streams groups (KIP-1071)."""

from typing import Annotated

from korvet.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    GroupDescription,
)
from korvet.wire.messages.streams_group_heartbeat import (
    Endpoint,
    KeyValue,
    TaskIds,
    TaskOffset,
    TopicInfo,
)
from korvet.wire.schema import Field, Message, Response, i8, i32, request, response


@request(key=89, versions=(0, 1), flexible=0)
class StreamsGroupDescribeRequest(ConsumerGroupDescribeRequest):
    include_topology_description: Annotated[bool, Field(since=1)] = False


class Subtopology(Message):
    subtopology_id: str
    source_topics: list[str]
    repartition_sink_topics: list[str]
    state_changelog_topics: list[TopicInfo]
    repartition_source_topics: list[TopicInfo]


class Topology(Message):
    epoch: i32
    subtopologies: list[Subtopology] | None = None
    """Null in Kafka 4.3 while topics are missing or incorrectly partitioned."""


class Assignment(Message):
    active_tasks: list[TaskIds]
    standby_tasks: list[TaskIds]
    warmup_tasks: list[TaskIds]


class Member(Message):
    member_id: str
    member_epoch: i32
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str
    client_host: str
    topology_epoch: i32
    process_id: str
    user_endpoint: Endpoint | None = None
    client_tags: list[KeyValue]
    task_offsets: list[TaskOffset] = []
    task_end_offsets: list[TaskOffset] = []
    assignment: Assignment
    target_assignment: Assignment
    is_classic: bool = False


class TopologyNode(Message):
    name: str
    node_type: i8
    source_topics: list[str]
    sink_topic: str | None = None
    stores: list[str]
    successors: list[str]


class TopologyDescriptionSubtopology(Message):
    subtopology_id: str
    nodes: list[TopologyNode]


class GlobalStore(Message):
    source: TopologyNode
    processor: TopologyNode


class TopologyDescription(Message):
    subtopologies: list[TopologyDescriptionSubtopology]
    global_stores: list[GlobalStore]


class DescribedGroup(GroupDescription):
    topology: Topology | None = None
    members: list[Member] = []
    authorized_operations: i32 = -2147483648
    """A bit field; the least number if it was not asked for."""
    topology_description: Annotated[TopologyDescription | None, Field(since=1)] = None
    topology_description_status: Annotated[i8, Field(since=1)] = 0
    """0: not requested; 1: not stored."""
    assignor_name: Annotated[str | None, Field(since=1)] = None


@response(StreamsGroupDescribeRequest)
class StreamsGroupDescribeResponse(Response):
    groups: list[DescribedGroup]
