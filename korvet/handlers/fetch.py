"""Fetch. Return records from an offset on, waiting for min_bytes of them.

Behaviour
- per partition: OFFSET_OUT_OF_RANGE below the log start, above the end, and where only a reader
  of records can be that Redis lost (not in time mode, for a request without a leader epoch); any
  other offset gives the next records there are;
  UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, FENCED_LEADER_EPOCH and UNKNOWN_LEADER_EPOCH
- of a partition that is named twice the last row counts, and the response has one
- max_bytes and partition_max_bytes hold, but the first batch is always returned whole
- with fewer than min_bytes, and no more than that in the log, the response waits, at most
  max_wait_ms; an append through any broker ends the wait; a foreign XADD is noticed within 200 ms
  (above 100 partitions of layout record: 2 ms each), or by the next fetch; more than 64 KiB are not
  kept while a response waits, but read again, and foreign entries are then noticed at its end
- read_committed ends at the last stable offset and lists the aborted transactions
- KAFKA_STORAGE_ERROR while Redis is unreachable; a response with nothing else is delayed by 200 ms,
  if max_wait_ms allows
- the diverging epoch, for a client that names the epoch of its last records (v12) and is above
  that epoch's end
- no fetch sessions: session id 0, each request names its partitions (KIP-227 allows it);
  FETCH_SESSION_ID_NOT_FOUND for a request that continues a session
Versions
- 0-1 return message sets v0, 2-3 v1, from 4 on batches; v7 sessions, v9 leader epochs, v10 zstd,
  v12 flexible, v13 topic ids
Left out
- replica ids: a follower is answered like a consumer; preferred replicas
"""

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from time import monotonic, time
from typing import Any

from korvet.base.bounded import without_repeats
from korvet.base.errors import ErrorCode
from korvet.base.metrics import Metrics
from korvet.context import Context
from korvet.fetch.delayed import DelayedFetch
from korvet.fetch.partition_reader import (
    READ_COMMITTED,
    TOPIC_IDS_SINCE,
    FetchParams,
    PartitionFetch,
)
from korvet.fetch.record_age import max_timestamp_of
from korvet.security.acl import Operation, ResourceType
from korvet.store.errors import StoreUnavailable
from korvet.topics.table import Topic
from korvet.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

FULL_FETCH_EPOCHS = (0, -1)
"""Session epochs of a request that names all its partitions; others continue a session."""
STORAGE_ERROR_PAUSE_S = 0.2
"""Delay of a response without anything but KAFKA_STORAGE_ERROR: clients repeat it at once."""

Row = PartitionFetch | PartitionData
"""A partition to read, or the response of one that cannot be read."""


def fetch(request: FetchRequest, context: Context) -> Coroutine[Any, Any, FetchResponse]:
    """Let the connection's next request begin at once: a fetch changes nothing."""
    context.release()
    if request.follower != -1:
        context.services.replica_log.note(request.follower, context.client_host, context.client_id)
    return _fetch(request, context)


async def _fetch(request: FetchRequest, context: Context) -> FetchResponse:
    began = monotonic()
    if request.session_epoch not in FULL_FETCH_EPOCHS:
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=[])
    params = FetchParams(
        version=context.version,
        client_id=context.client_id,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        committed=request.isolation_level == READ_COMMITTED,
    )
    asked = without_repeats(
        request.topics,
        lambda data: (data.topic, data.topic_id),
        lambda data: data.partitions,
        lambda row: row.partition,
    )
    topics = [await _resolve(data, rows, context) for data, rows in asked]
    partitions = [row for rows in topics for row in rows if isinstance(row, PartitionFetch)]
    services = context.services
    delayed = DelayedFetch(
        context.notifier, partitions, request.max_wait_ms, services.partition_reader, params
    )
    await delayed.run()
    if delayed.waited_s and services.authorizer.enabled:
        _refuse_denied(partitions, context)
    if _only_storage_errors(partitions, topics):
        await asyncio.sleep(min(STORAGE_ERROR_PAUSE_S, delayed.remaining_s))
    _count(partitions, services.metrics)
    services.metrics.fetch_work_seconds.observe(monotonic() - began - delayed.waited_s)
    return FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic=data.topic,
                topic_id=data.topic_id,
                partitions=[row for row in map(_response_of, rows) if row is not None],
            )
            for (data, _), rows in zip(asked, topics, strict=True)
        ]
    )


def _refuse_denied(partitions: Iterable[PartitionFetch], context: Context) -> None:
    """Replace the records of topics that the client may no longer read, after a wait."""
    for one in partitions:
        if not context.allows(Operation.READ, ResourceType.TOPIC, one.topic.name):
            one.size = one.records = 0
            one.response = _refusal(one.request, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _refusal(partition: FetchPartition, error: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=partition.partition, error_code=error, high_watermark=-1, records=[]
    )


def _count(partitions: Iterable[PartitionFetch], metrics: Metrics) -> None:
    """Count the records of the response by topic, and the age of each partition's first batch."""
    now_ms = time() * 1000
    for one in partitions:
        if one.size and one.response is not None:
            metrics.fetched(one.topic.name, one.records, one.size)
            parts = one.response.records
            timestamp = max_timestamp_of(parts) if isinstance(parts, list) else -1
            if timestamp >= 0:
                metrics.fetch_age_seconds.observe(max(0.0, now_ms - timestamp) / 1000)


def _only_storage_errors(
    partitions: Sequence[PartitionFetch], topics: Iterable[Iterable[Row]]
) -> bool:
    """Return whether the response has no records, and an error because Redis is unreachable."""
    if any(one.size for one in partitions):
        return False
    found = (_response_of(row) for rows in topics for row in rows)
    return any(each and each.error_code == ErrorCode.KAFKA_STORAGE_ERROR for each in found)


def _response_of(row: Row) -> PartitionData | None:
    return row.response if isinstance(row, PartitionFetch) else row


async def _resolve(
    data: FetchTopic, partitions: Iterable[FetchPartition], context: Context
) -> list[Row]:
    """Return partitions of the topic, to be read or refused."""
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topic: Topic | None = None
    try:
        if context.version >= TOPIC_IDS_SINCE:
            topic, unknown = await context.topics.get_id(data.topic_id), ErrorCode.UNKNOWN_TOPIC_ID
        else:
            topic = await context.topics.get_readable(data.topic)
    except StoreUnavailable:
        unknown = ErrorCode.KAFKA_STORAGE_ERROR
    rows: list[Row] = []
    for partition in partitions:
        if topic is not None and 0 <= partition.partition < topic.partitions:
            rows.append(PartitionFetch(topic, partition))
            continue
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is not None else unknown
        rows.append(_refusal(partition, error))
    return rows
