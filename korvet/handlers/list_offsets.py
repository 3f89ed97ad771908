"""ListOffsets. Return offsets by timestamp, or the start or end.

Behaviour
- -1 latest, -2 earliest (the first live record), -3 the newest timestamp (foreign entries are
  scanned for theirs), -4 earliest local (in Redis), -5 latest tiered (the last record copied to a
  segment) and -6 earliest pending upload; -1 if nothing is copied
- a timestamp returns the first record at or after it, with its own offset and time; offset -1 if
  there is none
- per partition, in this order: INVALID_REQUEST for one that is named twice, from version 1 on,
  UNSUPPORTED_VERSION for a special timestamp that the request's version lacks,
  UNKNOWN_TOPIC_OR_PARTITION, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH
- with isolation level read_committed the end is the last stable offset
- REQUEST_TIMED_OUT if the remote store takes longer than timeout_ms, or before version 10 than
  remote.list.offsets.request.timeout.ms
Versions
- v0 a list of offsets, v2 isolation level, v4 leader epochs, v7 -3, v8 -4, v9 -5, v11 -6
"""

import asyncio
from functools import partial

from msgspec.structs import replace

from korvet.base.bounded import gather_bounded
from korvet.base.errors import ErrorCode
from korvet.context import Context
from korvet.fetch.partition_reader import READ_COMMITTED
from korvet.groups.offsets_view import OffsetsView
from korvet.log.leader_epochs import is_behind
from korvet.log.offset_for_time import NEWEST, find_time
from korvet.scripts.calls.partition import ListOffsetsReply
from korvet.store.errors import StoreError
from korvet.topics.table import Topic
from korvet.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

LATEST, EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = -1, -2, -4, -5, -6
TIMEOUT_SINCE = 10
"""The first version with a time limit."""
ONCE_SINCE = 1
"""The first version that refuses a partition named twice."""
SINCE = {NEWEST: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, PENDING_UPLOAD: 11}


async def list_offsets(request: ListOffsetsRequest, context: Context) -> ListOffsetsResponse:
    if request.replica_id != -1:
        context.services.replica_log.note(
            request.replica_id, context.client_host, context.client_id
        )
    committed = request.isolation_level == READ_COMMITTED
    timeout_ms = request.timeout_ms if context.version >= TIMEOUT_SINCE else 0
    if timeout_ms <= 0:
        timeout_ms = context.settings.integer("remote.list.offsets.request.timeout.ms")
    asked = [(data.name, data.partitions) for data in request.topics]
    twice: set[tuple[str, int]] = set()
    if context.version >= ONCE_SINCE:
        asked, twice = _each_once(asked)

    async def answer(name: str, row: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        if (name, row.partition_index) in twice:
            return _error(row, ErrorCode.INVALID_REQUEST)
        try:
            async with asyncio.timeout(timeout_ms / 1000 if _may_be_remote(row, context) else None):
                return await _partition(name, row, committed, context)
        except TimeoutError:
            return _error(row, ErrorCode.REQUEST_TIMED_OUT)

    answers = []
    for name, rows in asked:
        found = await gather_bounded(partial(answer, name), rows)
        answers.append(ListOffsetsTopicResponse(name=name, partitions=found))
    return ListOffsetsResponse(topics=answers)


def _may_be_remote(asked: ListOffsetsPartition, context: Context) -> bool:
    """Return whether the lookup may have to wait for the remote store."""
    is_by_time = asked.timestamp >= 0 or asked.timestamp == NEWEST
    return is_by_time and context.services.log_reader.remote is not None


def _each_once(
    asked: list[tuple[str, list[ListOffsetsPartition]]],
) -> tuple[list[tuple[str, list[ListOffsetsPartition]]], set[tuple[str, int]]]:
    """Return every topic and partition once, and the partitions that were named twice."""
    known: dict[str, dict[int, ListOffsetsPartition]] = {}
    twice = set()
    for name, rows in asked:
        partitions = known.setdefault(name, {})
        for row in rows:
            if partitions.setdefault(row.partition_index, row) is not row:
                twice.add((name, row.partition_index))
    return [(name, list(rows.values())) for name, rows in known.items()], twice


async def _partition(
    name: str, asked: ListOffsetsPartition, committed: bool, context: Context
) -> ListOffsetsPartitionResponse:
    if context.version < SINCE.get(asked.timestamp, 0) or asked.timestamp < PENDING_UPLOAD:
        return _error(asked, ErrorCode.UNSUPPORTED_VERSION)
    try:
        topic = await context.topics.get_readable(name)
        if topic is None or not 0 <= asked.partition_index < topic.partitions:
            return _error(asked, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        error = context.services.epochs.check(asked.current_leader_epoch)
        if error:
            return _error(asked, error)
        if context.topics.is_view(topic):
            found = await _of_view(asked, context.services.offsets_view)
            epoch = context.services.epochs.epoch if found.offset >= 0 else -1
            return replace(found, leader_epoch=epoch)
        return await offset_at(topic, asked, committed, context)
    except StoreError:
        return _error(asked, ErrorCode.KAFKA_STORAGE_ERROR)


async def _of_view(asked: ListOffsetsPartition, view: OffsetsView) -> ListOffsetsPartitionResponse:
    """Return the requested offset of `__consumer_offsets`."""
    first, end = await view.bounds(asked.partition_index)
    if asked.timestamp == LATEST:
        return _response(asked, -1, end)
    if asked.timestamp in (EARLIEST, EARLIEST_LOCAL):
        return _response(asked, -1, first)
    if asked.timestamp in (LATEST_TIERED, PENDING_UPLOAD):
        return _response(asked, -1, -1)
    if asked.timestamp == NEWEST:
        found = await view.newest(asked.partition_index)
    else:
        found = await view.find_time(asked.partition_index, asked.timestamp)
    return _response(asked, *(found or (-1, -1)))


async def offset_at(
    topic: Topic, asked: ListOffsetsPartition, committed: bool, context: Context
) -> ListOffsetsPartitionResponse:
    """Return the requested offset, of the topic as it was known when the request arrived.

    With the log's leader epoch: another broker may have begun one that this broker does not know.
    """
    bounds = await context.store.run(topic.partition(asked.partition_index).list_offsets())
    if bounds.error:
        context.topics.invalidate()
        return _error(asked, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if is_behind(asked.current_leader_epoch, bounds.epoch):
        await context.services.epochs.follow(bounds.epoch)
        return _error(asked, ErrorCode.FENCED_LEADER_EPOCH)
    found = await _offset_in(topic, bounds, asked, committed, context)
    return replace(found, leader_epoch=bounds.epoch if found.offset >= 0 else -1)


async def _offset_in(
    topic: Topic,
    bounds: ListOffsetsReply,
    asked: ListOffsetsPartition,
    committed: bool,
    context: Context,
) -> ListOffsetsPartitionResponse:
    number, moment = asked.partition_index, asked.timestamp
    end = bounds.stable if committed else bounds.next
    if moment == LATEST:
        return _response(asked, -1, end)
    if moment in (EARLIEST, EARLIEST_LOCAL):
        # With an open transaction at the log start a committed read waits below it.
        first = bounds.first if moment == EARLIEST else bounds.local_first
        return _response(asked, -1, min(first, bounds.stable))
    if moment in (LATEST_TIERED, PENDING_UPLOAD):
        last = bounds.tiered - 1 if bounds.tiered > 0 else -1
        if moment == LATEST_TIERED:
            return _response(asked, -1, last)
        # As Kafka: -1 once retention has removed all records, too.
        is_empty = bounds.first >= bounds.next
        return _response(asked, -1, -1 if last < 0 or is_empty else last + 1)
    reader = context.services.log_reader
    found = await find_time(reader, context.store, topic, number, moment)
    if found is None and context.version == 0:
        return _response(asked, -1, bounds.next)
    if found is not None and found[1] >= end:
        found = None
    return _response(asked, *(found or (-1, -1)))


def _response(
    asked: ListOffsetsPartition, timestamp: int, offset: int
) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        old_style_offsets=[offset] if asked.max_num_offsets > 0 else [],
        timestamp=timestamp,
        offset=offset,
    )


def _error(asked: ListOffsetsPartition, error: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=error)
