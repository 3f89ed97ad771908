"""DescribeProducers (key 61), version 0. The producers that partitions remember.

Behaviour
- per partition: UNKNOWN_TOPIC_OR_PARTITION; producers of transactions with where theirs began
- the coordinator's epoch is -1 until a marker ended a transaction here, then 0: there is one
  coordinator, which never changes
Left out
- the epoch of earlier markers while the next transaction is open here: it is -1 meanwhile
"""

import re

from korvet.context import Context
from korvet.errors import ErrorCode
from korvet.topics import Topic
from korvet.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

_ROW = re.compile(rb"(-?\d+):-?\d+:(\d+):([^@]*)(?:@\d+:(-?\d+))?")
"""Epoch, next sequence, time, batches and first offset of the transaction: lua/lib/producer.lua."""
_ENDED = -2


async def describe_producers(
    request: DescribeProducersRequest, context: Context
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=asked.name,
                partitions=[
                    await _partition(await context.topics.get(asked.name), number, context)
                    for number in asked.partition_indexes
                ],
            )
            for asked in request.topics
        ]
    )


async def _partition(topic: Topic | None, number: int, context: Context) -> PartitionResponse:
    if topic is None or not 0 <= number < topic.partitions:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return PartitionResponse(
            partition_index=number,
            error_code=error,
            error_message=error.message,
            active_producers=[],
        )
    key = context.keys.partition(topic.name, number).producers
    flat = await context.store.command("HGETALL", key)
    return PartitionResponse(
        partition_index=number,
        error_code=ErrorCode.NONE,
        active_producers=[
            _producer(int(producer_id), row)
            for producer_id, row in zip(flat[::2], flat[1::2], strict=True)
        ],
    )


def _producer(producer_id: int, row: bytes) -> ProducerState:
    found = _ROW.fullmatch(row)
    assert found is not None, row
    epoch, time, batches, first = found.groups()
    newest = batches.rpartition(b",")[2]
    began = int(first or -1)
    return ProducerState(
        producer_id=producer_id,
        producer_epoch=int(epoch),
        last_sequence=int(newest.split(b"-")[1]) if newest else -1,
        last_timestamp=int(time),
        coordinator_epoch=0 if began == _ENDED else -1,
        current_txn_start_offset=max(began, -1),
    )
