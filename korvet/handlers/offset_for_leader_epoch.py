"""OffsetForLeaderEpoch. Return the end of a leader epoch.

Behaviour
- the newest epoch of a partition ends at the log's end, an earlier one where the log ended when
  the next began: below a client's position, if Redis lost records; an epoch that has not begun has
  no end (-1), and an epoch below -1 ended at the log start
- UNKNOWN_TOPIC_OR_PARTITION, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH
Versions
- v1 leader_epoch in the answer, v2 current_leader_epoch, v3 replica_id (ignored), v4 flexible
"""

from functools import partial

from korvet.base.bounded import gather_bounded
from korvet.base.errors import ErrorCode
from korvet.context import Context
from korvet.log.leader_epochs import UNDEFINED, end_of, parse_rows
from korvet.store.errors import StoreError
from korvet.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


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
        epochs = context.services.epochs
        error = epochs.check(asked.current_leader_epoch)
        if error or asked.leader_epoch == UNDEFINED or asked.leader_epoch > epochs.epoch:
            return _result(number, error)
        bounds = await context.store.run(
            context.keys.partition(name, number, topic.id).list_offsets()
        )
    except StoreError:
        return _result(number, ErrorCode.KAFKA_STORAGE_ERROR)
    if bounds.error:
        context.topics.invalidate()
        return _result(number, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if asked.leader_epoch < 0:
        return _result(number, ErrorCode.NONE, asked.leader_epoch, bounds.start)
    end = end_of(asked.leader_epoch, parse_rows(bounds.epochs), bounds.next)
    return _result(number, ErrorCode.NONE, asked.leader_epoch, end)


def _result(number: int, error: ErrorCode, epoch: int = -1, end: int = -1) -> EpochEndOffset:
    return EpochEndOffset(error_code=error, partition=number, leader_epoch=epoch, end_offset=end)
