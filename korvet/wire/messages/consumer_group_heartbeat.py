"""ConsumerGroupHeartbeat (key 68): join, stay in or leave a consumer group (KIP-848).

Null means unchanged since the last heartbeat.
From 1 on the member chooses its own id, and may subscribe by a regular expression.
"""

from typing import Annotated

from korvet.wire.schema import ErrorResponse, Field, Message, i32, request, response, uuid


class TopicPartitions(Message):
    topic_id: uuid
    partitions: list[i32]


@request(key=68, versions=(0, 1), flexible=0)
class ConsumerGroupHeartbeatRequest(Message):
    group_id: str
    member_id: str
    member_epoch: i32
    """0 joins, -1 leaves, -2 leaves temporarily (static members)."""
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: i32 = -1
    """-1: unchanged."""
    subscribed_topic_names: list[str] | None = None
    subscribed_topic_regex: Annotated[str | None, Field(since=1)] = None
    server_assignor: str | None = None
    topic_partitions: list[TopicPartitions] | None = None
    """The partitions that the member owns; null: unchanged."""


class Assignment(Message):
    topic_partitions: list[TopicPartitions]


@response(ConsumerGroupHeartbeatRequest)
class ConsumerGroupHeartbeatResponse(ErrorResponse):
    member_id: str | None = None
    member_epoch: i32 = 0
    heartbeat_interval_ms: i32 = 0
    assignment: Assignment | None = None
    """Null: unchanged."""
