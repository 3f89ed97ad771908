"""OffsetForLeaderEpoch. Return the end of a leader epoch.

Behaviour
- a partition has one epoch, 0: it ends at the log's end; any other epoch has no end (-1), but an
  epoch below -1 ended at the log start
- UNKNOWN_TOPIC_OR_PARTITION, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH
Versions
- v1 leader_epoch in the answer, v2 current_leader_epoch, v3 replica_id (ignored), v4 flexible
"""

from functools import partial

from korvet.base.bounded import gather_bounded
from korvet.base.errors import ErrorCode
from korvet.context import Context
from korvet.fetch.leader_epoch import LEADER_EPOCH, check_leader_epoch
from korvet.store.errors import StoreError
from korvet.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

UNDEFINED = -1


async def offset_for_leader_epoch(
    request: OffsetForLeaderEpochRequest, context: Context
) -> OffsetForLeaderEpochResponse:
    answers = []
    for data in request.topics:
        rows = await gather_bounded(partial(_end, data.topic, context=context), data.partitions)
        answers.append(OffsetForLeaderTopicResult(topic=data.topic, partitions=rows))
    return OffsetForLeaderEpochResponse(topics=answers)


async def _end(name: str, asked: OffsetForLeaderPartition, context: Context) -> EpochEndOffset:
    number = asked.partition
    try:
        topic = await context.topics.get(name)
        if topic is None or not 0 <= number < topic.partitions:
            return _result(number, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        error = check_leader_epoch(asked.current_leader_epoch)
        if error or asked.leader_epoch == UNDEFINED or asked.leader_epoch > LEADER_EPOCH:
            return _result(number, error)
        bounds = await context.store.run(
            context.keys.partition(name, number, topic.id).list_offsets()
        )
    except StoreError:
        return _result(number, ErrorCode.KAFKA_STORAGE_ERROR)
    if bounds.error:
        context.topics.invalidate()
        return _result(number, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    end = bounds.next if asked.leader_epoch == LEADER_EPOCH else bounds.start
    return _result(number, ErrorCode.NONE, asked.leader_epoch, end)


def _result(number: int, error: ErrorCode, epoch: int = -1, end: int = -1) -> EpochEndOffset:
    return EpochEndOffset(error_code=error, partition=number, leader_epoch=epoch, end_offset=end)
