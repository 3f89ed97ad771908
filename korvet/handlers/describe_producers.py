"""DescribeProducers (key 61), version 0. The producers that partitions remember.

Behaviour
- per partition: UNKNOWN_TOPIC_OR_PARTITION; producers of transactions with where theirs began
- the coordinator's epoch is -1 until a marker ended a transaction here, then 0: there is one
  coordinator, which never changes
Left out
- the epoch of earlier markers while the next transaction is open here: it is -1 meanwhile
"""

from korvet.context import Context
from korvet.errors import ErrorCode
from korvet.scripts.remembered import ENDED, Remembered
from korvet.topics import Topic
from korvet.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


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
    known = Remembered.of(row)
    return ProducerState(
        producer_id=producer_id,
        producer_epoch=known.epoch,
        last_sequence=known.batches[-1][1] if known.batches else -1,
        last_timestamp=known.time_ms,
        coordinator_epoch=0 if known.first == ENDED else -1,
        current_txn_start_offset=max(known.first, -1),
    )
