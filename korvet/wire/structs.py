"""Structs that messages of several APIs share, named by what they hold."""

from korvet.wire.schema import Message, i16, i32


class NodeEndpoint(Message):
    node_id: i32
    host: str
    port: i32
    rack: str | None = None


class LeaderIdAndEpoch(Message):
    leader_id: i32 = -1
    leader_epoch: i32 = -1


class PartitionError(Message):
    partition_index: i32
    error_code: i16 = 0


class PartitionErrorMessage(Message):
    partition_index: i32
    error_code: i16 = 0
    error_message: str | None = None


class TopicErrors(Message):
    name: str
    partitions: list[PartitionError]


class TopicPartitions(Message):
    topic: str
    partitions: list[i32]


class NamedPartitions(Message):
    name: str
    partitions: list[i32]


class PartitionIndexes(Message):
    name: str
    partition_indexes: list[i32]
