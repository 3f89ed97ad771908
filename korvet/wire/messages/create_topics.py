"""CreateTopics (key 19): create topics, or only validate the request.

From 4 on -1 means the broker's default number of partitions and replicas. The response has
the configs from 5 on; Java's client wants an empty list there, never null.
"""

from typing import Annotated

from korvet.wire.schema import ZERO_UUID, Field, Message, i8, i16, i32, request, response, uuid


class CreatableReplicaAssignment(Message):
    partition_index: i32
    broker_ids: list[i32]


class CreatableTopicConfig(Message):
    name: str
    value: str | None


class CreatableTopic(Message):
    name: str
    num_partitions: i32
    replication_factor: i16
    assignments: list[CreatableReplicaAssignment]
    """Empty: the broker assigns. Otherwise the two numbers above are -1."""
    configs: list[CreatableTopicConfig]


@request(key=19, versions=(0, 7), flexible=5)
class CreateTopicsRequest(Message):
    topics: list[CreatableTopic]
    timeout_ms: i32 = 60000
    validate_only: Annotated[bool, Field(since=1)] = False


class CreatableTopicConfigs(Message):
    name: str
    value: str | None
    read_only: bool
    config_source: i8 = -1
    """1 topic, 2 and 3 and 4 broker (dynamic, default of the cluster, static), 5 default."""
    is_sensitive: bool = False


class CreatableTopicResult(Message):
    name: str
    topic_id: Annotated[uuid, Field(since=7)] = ZERO_UUID
    error_code: i16 = 0
    error_message: Annotated[str | None, Field(since=1)] = None
    topic_config_error_code: Annotated[i16, Field(since=5, tag=0)] = 0
    num_partitions: Annotated[i32, Field(since=5)] = -1
    replication_factor: Annotated[i16, Field(since=5)] = -1
    configs: Annotated[list[CreatableTopicConfigs] | None, Field(since=5)] = []
    """Never null: Java's client fails on it."""


@response(CreateTopicsRequest)
class CreateTopicsResponse(Message):
    throttle_time_ms: Annotated[i32, Field(since=2)] = 0
    topics: list[CreatableTopicResult]
