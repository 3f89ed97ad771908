"""AlterReplicaLogDirs. Accept only the log directory `redis`.

Behaviour
- there is one log directory, the one that DescribeLogDirs returns: moving a partition to it
  succeeds without a change, any other directory is LOG_DIR_NOT_FOUND
- UNKNOWN_TOPIC_OR_PARTITION for partitions that do not exist
Versions
- v2 flexible
"""

from korvet.base.errors import ErrorCode
from korvet.context import Context
from korvet.topics.table import LOG_DIRECTORY, TopicTable
from korvet.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from korvet.wire.structs import NamedPartitions, PartitionError


async def alter_replica_log_dirs(
    request: AlterReplicaLogDirsRequest, context: Context
) -> AlterReplicaLogDirsResponse:
    return AlterReplicaLogDirsResponse(
        results=[
            await _result(asked, directory.path, context.topics)
            for directory in request.dirs
            for asked in directory.topics
        ]
    )


async def _result(
    asked: NamedPartitions, path: str, topics: TopicTable
) -> AlterReplicaLogDirTopicResult:
    topic = await topics.get(asked.name)
    count = 0 if topic is None else topic.partitions

    def error(partition: int) -> ErrorCode:
        if path != LOG_DIRECTORY:
            return ErrorCode.LOG_DIR_NOT_FOUND
        known = 0 <= partition < count
        return ErrorCode.NONE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    return AlterReplicaLogDirTopicResult(
        topic_name=asked.name,
        partitions=[
            PartitionError(partition_index=number, error_code=error(number))
            for number in asked.partitions
        ],
    )
