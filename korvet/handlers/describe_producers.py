"""DescribeProducers. Return the producer states of partitions.

Behaviour
- per partition: INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST for one named
  more than ten times in the request; a transactional producer with its transaction's first offset
- a producer whose state is missing, or has no open transaction, while its transaction holds back
  the last stable offset: with that transaction's first offset
- coordinator epoch: -1 until a marker has ended a transaction here, then 0, as there is one
  coordinator
Left out
- the epoch of earlier markers while the next transaction is open: it is -1 until that ends
"""

import asyncio

from korvet.base.bounded import RepeatLimit
from korvet.base.errors import ErrorCode
from korvet.context import Context
from korvet.scripts.producer_state import ENDED, ProducerStateEntry
from korvet.topics.lifecycle import check_topic_name
from korvet.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

UNKNOWN = ProducerStateEntry(0, 0, -1, [], -1)


async def describe_producers(
    request: DescribeProducersRequest, context: Context
) -> DescribeProducersResponse:
    times = RepeatLimit()
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=asked.name,
                partitions=[
                    _refusal(number, ErrorCode.INVALID_REQUEST)
                    if times.too_many((asked.name, number))
                    else await _partition(asked.name, number, context)
                    for number in asked.partition_indexes
                ],
            )
            for asked in request.topics
        ]
    )


async def _partition(name: str, number: int, context: Context) -> PartitionResponse:
    topic = await context.topics.get(name)
    if topic is None and check_topic_name(name, reserved=True):
        return _refusal(number, ErrorCode.INVALID_TOPIC_EXCEPTION)
    if topic is None or not 0 <= number < topic.partitions:
        return _refusal(number, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    key = topic.partition(number)
    flat, waiting = await asyncio.gather(
        context.store.command("HGETALL", key.producers),
        context.store.command("ZRANGE", key.open_txns, 0, -1, "WITHSCORES"),
    )
    rows = {
        int(id): ProducerStateEntry.of(row) for id, row in zip(flat[::2], flat[1::2], strict=True)
    }
    since = {int(id): int(float(at)) for id, at in zip(waiting[::2], waiting[1::2], strict=True)}
    return PartitionResponse(
        partition_index=number,
        active_producers=[
            _producer(producer_id, rows.get(producer_id, UNKNOWN), since.get(producer_id, -1))
            for producer_id in {**rows, **since}
        ],
    )


def _refusal(number: int, error: ErrorCode) -> PartitionResponse:
    return PartitionResponse(partition_index=number, error_code=error, error_message=error.message)


def _producer(producer_id: int, known: ProducerStateEntry, since: int) -> ProducerState:
    return ProducerState(
        producer_id=producer_id,
        producer_epoch=known.epoch,
        last_sequence=known.batches[-1][1] if known.batches else -1,
        last_timestamp=known.time_ms,
        coordinator_epoch=0 if known.first == ENDED else -1,
        current_txn_start_offset=known.first if known.first >= 0 else since,
    )
