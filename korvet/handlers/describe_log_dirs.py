"""DescribeLogDirs. Return the bytes of each partition.

Behaviour
- there is one log directory, called `redis`, with every partition once
- sizes are the bytes of the records as stored, not what Redis spends on them
- unknown topics and partitions are left out, and nothing is named twice
Versions
- v1 as v0, v2 flexible, v3 a top-level error, v4 total and usable bytes (Redis's maxmemory, or the
  machine's memory if it is 0; -1 on a cluster), v5 is_cordoned (never)
"""

from collections.abc import Sequence

from korvet.base.bounded import chunks
from korvet.base.errors import ErrorCode
from korvet.context import Context
from korvet.topics.table import LOG_DIRECTORY, Topic, TopicTable
from korvet.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

AT_ONCE = 256
"""Partitions per pipeline of script calls."""


async def describe_log_dirs(
    request: DescribeLogDirsRequest, context: Context
) -> DescribeLogDirsResponse:
    found = [
        DescribeLogDirsTopic(name=topic.name, partitions=await _measure(topic, numbers, context))
        for topic, numbers in await _select(request, context.topics)
    ]
    total, usable = await _read_capacity(context)
    return DescribeLogDirsResponse(
        results=[
            DescribeLogDirsResult(
                log_dir=LOG_DIRECTORY, topics=found, total_bytes=total, usable_bytes=usable
            )
        ]
    )


async def _select(
    request: DescribeLogDirsRequest, table: TopicTable
) -> list[tuple[Topic, Sequence[int]]]:
    if request.topics is None:
        return [(topic, range(topic.partitions)) for topic in await table.all()]
    wanted: dict[str, tuple[Topic, dict[int, None]]] = {}
    for row in request.topics:
        topic = await table.get(row.topic)
        if topic is not None:
            known = [number for number in row.partitions if 0 <= number < topic.partitions]
            if known:
                wanted.setdefault(topic.name, (topic, {}))[1].update(dict.fromkeys(known))
    return [(topic, list(numbers)) for topic, numbers in wanted.values()]


async def _measure(
    topic: Topic, numbers: Sequence[int], context: Context
) -> list[DescribeLogDirsPartition]:
    found = []
    for some in chunks(numbers, AT_ONCE):
        replies = await context.store.run_many(
            topic.partition(number).list_offsets() for number in some
        )
        found += [
            DescribeLogDirsPartition(partition_index=number, partition_size=reply.bytes)
            for number, reply in zip(some, replies, strict=True)
            if reply.error == ErrorCode.NONE
        ]
    return found


async def _read_capacity(context: Context) -> tuple[int, int]:
    """Return Redis's total and usable bytes; -1 if they are unknown."""
    if context.version < 4 or context.store.is_cluster:
        return -1, -1
    info: bytes = await context.store.command("INFO", "memory")
    lines = [line.partition(b":") for line in info.splitlines()]
    numbers = {name: int(value) for name, _, value in lines if value.isdigit()}
    total = numbers.get(b"maxmemory", 0) or numbers.get(b"total_system_memory", 0)
    if not total:
        return -1, -1
    return total, max(0, total - numbers.get(b"used_memory", 0))
