"""AlterReplicaLogDirs (key 34), versions 0-2. Moves a partition to another log directory.

Behaviour
- there is one directory, the one DescribeLogDirs names: a move to it is done already, any other is
  LOG_DIR_NOT_FOUND; there, partitions nobody has are UNKNOWN_TOPIC_OR_PARTITION
Versions
- v2 flexible
"""

from korvet.context import Context
from korvet.errors import ErrorCode
from korvet.topics.table import LOG_DIRECTORY
from korvet.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
    AlterReplicaLogDirTopicResult,
)


async def alter_replica_log_dirs(
    request: AlterReplicaLogDirsRequest, context: Context
) -> AlterReplicaLogDirsResponse:
    return AlterReplicaLogDirsResponse(
        results=[
            await _answered(asked, directory.path, context)
            for directory in request.dirs
            for asked in directory.topics
        ]
    )


async def _answered(
    asked: AlterReplicaLogDirTopic, path: str, context: Context
) -> AlterReplicaLogDirTopicResult:
    topic = await context.topics.get(asked.name)
    count = 0 if topic is None else topic.partitions

    def error(partition: int) -> ErrorCode:
        if path != LOG_DIRECTORY:
            return ErrorCode.LOG_DIR_NOT_FOUND
        known = 0 <= partition < count
        return ErrorCode.NONE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    return AlterReplicaLogDirTopicResult(
        topic_name=asked.name,
        partitions=[
            AlterReplicaLogDirPartitionResult(partition_index=number, error_code=error(number))
            for number in asked.partitions
        ],
    )
