"""DeleteRecords. Move the start of partitions to a higher offset.

Behaviour
- offset -1 is the end when the request begins; one at or below the log start changes nothing,
  without an error
- UNKNOWN_TOPIC_OR_PARTITION; POLICY_VIOLATION if the topic's cleanup.policy lacks `delete`;
  OFFSET_OUT_OF_RANGE above the end or below -1
- of a partition that is named twice the last row counts, and the response has one
- more than 256 rows of the index (of 64 KB, or one larger batch) are deleted by several script
  calls; a reader may see a start in between
- the response comes 50 ms later: until then, fetches of consumers that catch up through any broker
  may use the start from before
- in `batch` topics a batch that reaches past the offset stays in Redis; readers start at the offset
Versions
- v1 as v0, v2 flexible
"""

import asyncio
from functools import partial

from korvet.base.bounded import gather_bounded, without_repeats
from korvet.base.errors import ErrorCode
from korvet.context import Context
from korvet.log.recent_states import FRESH_S
from korvet.store.errors import StoreError
from korvet.topics.lifecycle import store_failure
from korvet.topics.table import Topic
from korvet.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

END = -1


async def delete_records(request: DeleteRecordsRequest, context: Context) -> DeleteRecordsResponse:
    answers = []
    once = without_repeats(
        request.topics,
        lambda data: data.name,
        lambda data: data.partitions,
        lambda row: row.partition_index,
    )
    for data, partitions in once:
        rows = await gather_bounded(partial(_delete, data.name, context=context), partitions)
        answers.append(DeleteRecordsTopicResult(name=data.name, partitions=rows))
    await asyncio.sleep(FRESH_S)
    return DeleteRecordsResponse(topics=answers)


async def _delete(
    name: str, asked: DeleteRecordsPartition, context: Context
) -> DeleteRecordsPartitionResult:
    try:
        topic = await context.topics.get(name)
        if topic is None or not 0 <= asked.partition_index < topic.partitions:
            return _result(asked, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if not topic.policy.delete:
            return _result(asked, ErrorCode.POLICY_VIOLATION)
        if asked.offset < END:
            return _result(asked, ErrorCode.OFFSET_OUT_OF_RANGE)
        before = asked.offset
        if before == END:
            before = await _end(topic, asked.partition_index, context)
        more = True
        while more:
            reply = await context.store.run(
                context.keys.partition(name, asked.partition_index, topic.id).delete_records(
                    before=before
                )
            )
            before, more = reply.again, reply.again >= 0
    except StoreError as error:
        return _result(asked, store_failure(error))
    if reply.error == ErrorCode.UNKNOWN_TOPIC_ID:
        context.topics.invalidate()
        return _result(asked, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return _result(asked, ErrorCode(reply.error), reply.start)


async def _end(topic: Topic, partition: int, context: Context) -> int:
    """Return the end of the partition: a call that is late then deletes nothing newer."""
    found = await context.store.run(topic.partition(partition).list_offsets())
    return found.next if found.error == ErrorCode.NONE else END


def _result(
    asked: DeleteRecordsPartition, error: ErrorCode, start: int = -1
) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=asked.partition_index, low_watermark=start, error_code=error
    )
