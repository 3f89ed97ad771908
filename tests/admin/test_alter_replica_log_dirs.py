"""AlterReplicaLogDirs, with the codes of Apache Kafka 4.3.0."""

import pytest

from korvet.base.errors import ErrorCode as E
from korvet.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
)
from korvet.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from korvet.wire.structs import NamedPartitions
from tests.support.connected_broker import Broker


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_a_partition_may_be_moved_only_to_its_own_directory(
    broker: Broker, version: int
) -> None:
    await broker.create("t", partitions=2)
    (here,) = (await broker.ask(DescribeLogDirsRequest(topics=None), 4)).results

    async def moved(path: str, name: str, *partitions: int) -> list[tuple[str, int, E]]:
        topic = NamedPartitions(name=name, partitions=list(partitions))
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[topic])])
        return [
            (result.topic_name, row.partition_index, E(row.error_code))
            for result in (await broker.ask(request, version)).results
            for row in result.partitions
        ]

    unknown = E.UNKNOWN_TOPIC_OR_PARTITION
    assert await moved(here.log_dir, "t", 1, 0) == [("t", 1, E.NONE), ("t", 0, E.NONE)]
    assert await moved(here.log_dir, "t", 2, -1) == [("t", 2, unknown), ("t", -1, unknown)]
    assert await moved(here.log_dir, "absent", 0) == [("absent", 0, unknown)]
    assert await moved("/elsewhere", "t", 0) == [("t", 0, E.LOG_DIR_NOT_FOUND)]
    assert await moved("/elsewhere", "absent", 0) == [("absent", 0, E.LOG_DIR_NOT_FOUND)]
