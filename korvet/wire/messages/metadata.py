"""Metadata (key 3): brokers, topics, partitions and their leaders.

All topics are requested by an empty list in 0 and by null from 1 on. Topics may have ids in place
of names from 12 on. Version 13 has an error that makes the client bootstrap again.
"""

from typing import Annotated

from korvet.wire.schema import ZERO_UUID, Field, Message, i16, i32, request, response, uuid


class MetadataRequestTopic(Message):
    topic_id: Annotated[uuid, Field(since=10)] = ZERO_UUID
    name: Annotated[str | None, Field(nullable_since=10)]


@request(key=3, versions=(0, 13), flexible=9)
class MetadataRequest(Message):
    topics: Annotated[list[MetadataRequestTopic] | None, Field(nullable_since=1)]
    """Null asks for all topics, as an empty list does in version 0."""
    allow_auto_topic_creation: Annotated[bool, Field(since=4)] = True
    include_cluster_authorized_operations: Annotated[bool, Field(since=8, until=10)] = False
    include_topic_authorized_operations: Annotated[bool, Field(since=8)] = False


class MetadataResponseBroker(Message):
    node_id: i32
    host: str
    port: i32
    rack: Annotated[str | None, Field(since=1)] = None


class MetadataResponsePartition(Message):
    error_code: i16 = 0
    partition_index: i32
    leader_id: i32
    leader_epoch: Annotated[i32, Field(since=7)] = -1
    replica_nodes: list[i32]
    isr_nodes: list[i32]
    offline_replicas: Annotated[list[i32], Field(since=5)] = []


class MetadataResponseTopic(Message):
    error_code: i16 = 0
    name: Annotated[str | None, Field(nullable_since=12)]
    topic_id: Annotated[uuid, Field(since=10)] = ZERO_UUID
    is_internal: Annotated[bool, Field(since=1)] = False
    partitions: list[MetadataResponsePartition]
    topic_authorized_operations: Annotated[i32, Field(since=8)] = -2147483648
    """A bit field; the least number if it was not asked for."""


@response(MetadataRequest)
class MetadataResponse(Message):
    throttle_time_ms: Annotated[i32, Field(since=3)] = 0
    brokers: list[MetadataResponseBroker]
    cluster_id: Annotated[str | None, Field(since=2)] = None
    controller_id: Annotated[i32, Field(since=1)] = -1
    topics: list[MetadataResponseTopic]
    cluster_authorized_operations: Annotated[i32, Field(since=8, until=10)] = -2147483648
    """A bit field; the least number if it was not asked for."""
    error_code: Annotated[i16, Field(since=13)] = 0
