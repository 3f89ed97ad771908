"""AlterReplicaLogDirs (key 34): in which log directory a partition's copy shall lie."""

from korvet.wire.schema import Message, i16, i32, message


class AlterReplicaLogDirTopic(Message):
    name: str
    partitions: list[i32]


class AlterReplicaLogDir(Message):
    path: str
    topics: list[AlterReplicaLogDirTopic]


@message(key=34, versions=(0, 2), flexible=2, request=True)
class AlterReplicaLogDirsRequest(Message):
    dirs: list[AlterReplicaLogDir]


class AlterReplicaLogDirPartitionResult(Message):
    partition_index: i32
    error_code: i16


class AlterReplicaLogDirTopicResult(Message):
    topic_name: str
    partitions: list[AlterReplicaLogDirPartitionResult]


@message(key=34, versions=(0, 2), flexible=2, request=False)
class AlterReplicaLogDirsResponse(Message):
    throttle_time_ms: i32 = 0
    results: list[AlterReplicaLogDirTopicResult]
