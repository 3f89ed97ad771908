"""AlterReplicaLogDirs (key 34): move a partition's replica to another log directory."""

from korvet.wire.schema import Message, Response, request, response
from korvet.wire.structs import NamedPartitions, PartitionError


class AlterReplicaLogDir(Message):
    path: str
    topics: list[NamedPartitions]


@request(key=34, versions=(0, 2), flexible=2)
class AlterReplicaLogDirsRequest(Message):
    dirs: list[AlterReplicaLogDir]


class AlterReplicaLogDirTopicResult(Message):
    topic_name: str
    partitions: list[PartitionError]


@response(AlterReplicaLogDirsRequest)
class AlterReplicaLogDirsResponse(Response):
    results: list[AlterReplicaLogDirTopicResult]
