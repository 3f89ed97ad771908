"""StreamsGroupHeartbeat (key 88): join, stay in or leave a streams group (KIP-1071).

The member chooses its own id. Null means unchanged since the last heartbeat.
"""

from typing import Annotated

from korvet.wire.schema import (
    ErrorResponse,
    Field,
    Message,
    i8,
    i16,
    i32,
    i64,
    request,
    response,
    u16,
)
from korvet.wire.structs import TopicPartitions


class KeyValue(Message):
    key: str
    value: str


class TopicInfo(Message):
    name: str
    partitions: i32
    """0: the broker decides; always 0 for changelog topics."""
    replication_factor: i16
    """0: the broker's default."""
    topic_configs: list[KeyValue]


class CopartitionGroup(Message):
    """Indexes into the subtopology's lists of topics: these have equal partition counts."""

    source_topics: list[i16]
    source_topic_regex: list[i16]
    repartition_source_topics: list[i16]


class Subtopology(Message):
    subtopology_id: str
    source_topics: list[str]
    source_topic_regex: list[str]
    state_changelog_topics: list[TopicInfo]
    repartition_sink_topics: list[str]
    repartition_source_topics: list[TopicInfo]
    copartition_groups: list[CopartitionGroup]


class Topology(Message):
    epoch: i32
    subtopologies: list[Subtopology]


class TaskIds(Message):
    subtopology_id: str
    partitions: list[i32]


class Endpoint(Message):
    host: str
    port: u16


class TaskOffset(Message):
    subtopology_id: str
    partition: i32
    offset: i64


@request(key=88, versions=(0, 1), flexible=0)
class StreamsGroupHeartbeatRequest(Message):
    group_id: str
    member_id: str
    member_epoch: i32
    """0 joins, -1 leaves."""
    endpoint_information_epoch: i32
    """The newest endpoint epoch that the member has received."""
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: i32 = -1
    topology: Topology | None = None
    """Sent by a member that joins."""
    active_tasks: list[TaskIds] | None = None
    standby_tasks: list[TaskIds] | None = None
    warmup_tasks: list[TaskIds] | None = None
    process_id: str | None = None
    """The Streams instance: its threads are members with one process id."""
    user_endpoint: Endpoint | None = None
    client_tags: list[KeyValue] | None = None
    task_offsets: list[TaskOffset] | None = None
    task_end_offsets: list[TaskOffset] | None = None
    shutdown_application: bool = False


class Status(Message):
    status_code: i8
    status_detail: str


class EndpointToPartitions(Message):
    user_endpoint: Endpoint
    active_partitions: list[TopicPartitions]
    standby_partitions: list[TopicPartitions]


@response(StreamsGroupHeartbeatRequest)
class StreamsGroupHeartbeatResponse(ErrorResponse):
    member_id: str = ""
    member_epoch: i32 = 0
    heartbeat_interval_ms: i32 = 0
    acceptable_recovery_lag_legacy: Annotated[i32, Field(until=0)] = 0
    task_offset_interval_ms: i32 = 0
    acceptable_recovery_lag: Annotated[i64, Field(since=1)] = -1
    """-1: the broker does not assign tasks by their lag."""
    status: list[Status] | None = None
    active_tasks: list[TaskIds] | None = None
    """Null, as the other tasks: unchanged."""
    standby_tasks: list[TaskIds] | None = None
    warmup_tasks: list[TaskIds] | None = None
    topology_description_required: Annotated[bool, Field(since=1)] = False
    endpoint_information_epoch: i32 = 0
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = None
