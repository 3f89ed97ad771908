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
- fetch sessions (KIP-227) in this process's memory: epoch 0 opens one, -1 closes it and has none;
  FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR. A response
  has the partitions with records, an error, a diverging epoch, or another high watermark, last
  stable offset or log start than the client knows
- a session belongs to the client's principal, and serves all its connections to this process; a
  new one evicts another by Kafka's rule (max.incremental.fetch.session.cache.slots), and so do
  sessions of more than 128 MiB
- a session of more than 100 partitions reads those that the client changed, that had records or an
  error, or whose log has had an append; the others are read in turn, which notices foreign XADDs
  and a log start that moved: each of 200 in 0.8 s, of 1,000 in 20 s, of 10,000 in 7 minutes
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
from uuid import UUID

from korvet.base.errors import ErrorCode
from korvet.base.metrics import Metrics
from korvet.context import Context
from korvet.fetch.delayed import DelayedFetch, SessionFetch
from korvet.fetch.partition_reader import (
    READ_COMMITTED,
    TOPIC_IDS_SINCE,
    FetchParams,
    PartitionFetch,
)
from korvet.fetch.record_format import max_timestamp_of
from korvet.fetch.sessions import (
    FetchedPartition,
    FetchedRows,
    FetchSession,
    PartitionRow,
    SessionError,
    partitions_of,
)
from korvet.security.acl import CLUSTER_NAME, Operation, ResourceType
from korvet.store.errors import StoreUnavailable
from korvet.topics.table import Topic
from korvet.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

STORAGE_ERROR_PAUSE_S = 0.2
"""Delay of a response without anything but KAFKA_STORAGE_ERROR: clients repeat it at once."""


def fetch(request: FetchRequest, context: Context) -> Coroutine[Any, Any, FetchResponse]:
    """Let the connection's next request begin at once: a fetch changes nothing."""
    context.release()
    if request.follower != -1:
        context.services.replica_log.note(request.follower, context.client_host, context.client_id)
    return _fetch(request, context)


async def _fetch(request: FetchRequest, context: Context) -> FetchResponse:
    began, services = monotonic(), context.services
    try:
        session = services.fetch_sessions.begin(request, context.version, context.session.principal)
    except SessionError as error:
        return FetchResponse(error_code=error.error, responses=[])
    params = FetchParams(
        version=context.version,
        client_id=context.client_id,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        committed=request.isolation_level == READ_COMMITTED,
    )
    reader, asked = services.partition_reader, partitions_of(request.topics)
    if session is not None:
        epoch = session.epoch
        await _check(session, context)
        asked = session.begin(began)
    rows = await _resolve(asked, request, context)
    partitions = [row for row in rows.values() if isinstance(row, PartitionFetch)]
    waiting = context.notifier, partitions, request.max_wait_ms, reader, params
    delayed = DelayedFetch(*waiting) if session is None else SessionFetch(*waiting, session, rows)
    await delayed.run()
    if delayed.waited_s and services.authorizer.enabled:
        _refuse_denied(partitions, context, request.follower >= 0)
    if _only_storage_errors(partitions, rows.values()):
        await asyncio.sleep(min(STORAGE_ERROR_PAUSE_S, delayed.remaining_s))
    _count(partitions, services.metrics)
    services.metrics.fetch_work_seconds.observe(monotonic() - began - delayed.waited_s)
    if session is None:
        return FetchResponse(responses=_by_topic(rows))
    if session.epoch != epoch:
        code = ErrorCode.INVALID_FETCH_SESSION_EPOCH
        return FetchResponse(error_code=code, session_id=session.id, responses=[])
    is_member = services.stream_reads.find_member(context.client_id) is not None
    news = session.respond(
        rows, rests=lambda topic: not is_member and not context.topics.is_view(topic)
    )
    return FetchResponse(session_id=session.id, responses=_by_topic(news))


async def _check(session: FetchSession, context: Context) -> None:
    """Make partitions due whose topic has changed, or that the client may no longer read."""
    topics, authorizer = context.topics, context.services.authorizer
    try:
        await topics.count()  # reads the table again if it is not fresh
    except StoreUnavailable:
        return
    known = topics.cached_version, authorizer.decisions
    if known == session.known:
        return
    session.known, allowed = known, dict[str, bool]()
    for one in session.partitions.values():
        topic = one.topic
        if topic is not None and topics.is_current(topic):
            if topic.name not in allowed:
                allowed[topic.name] = _may_read(context, topic.name, session.is_follower)
            if allowed[topic.name]:
                continue
        session.due.setdefault(one)


def _may_read(context: Context, topic: str, is_follower: bool) -> bool:
    if is_follower:
        return context.allows(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
    return context.allows(Operation.READ, ResourceType.TOPIC, topic)


def _refuse_denied(
    partitions: Iterable[PartitionFetch], context: Context, is_follower: bool
) -> None:
    """Replace the records of topics that the client may no longer read, after a wait."""
    for one in partitions:
        if not _may_read(context, one.topic.name, is_follower):
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
    partitions: Sequence[PartitionFetch], rows: Iterable[PartitionRow]
) -> bool:
    """Return whether the response has no records, and an error because Redis is unreachable."""
    if any(one.size for one in partitions):
        return False
    found = map(_response_of, rows)
    return any(each and each.error_code == ErrorCode.KAFKA_STORAGE_ERROR for each in found)


def _response_of(row: PartitionRow) -> PartitionData | None:
    return row.response if isinstance(row, PartitionFetch) else row


def _by_topic(rows: FetchedRows) -> list[FetchableTopicResponse]:
    found: dict[tuple[str, UUID], list[PartitionData]] = {}
    for one, row in rows.items():
        data = _response_of(row)
        if data is not None:
            found.setdefault((one.name, one.topic_id), []).append(data)
    return [
        FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=some)
        for (name, topic_id), some in found.items()
    ]


async def _resolve(
    asked: Iterable[FetchedPartition], request: FetchRequest, context: Context
) -> dict[FetchedPartition, PartitionRow]:
    """Return the partitions, to be read or refused."""
    found: dict[tuple[str, UUID], Topic | ErrorCode] = {}
    rows: dict[FetchedPartition, PartitionRow] = {}
    for one in asked:
        name = one.name, one.topic_id
        topic = found.get(name)
        if topic is None:
            topic = found[name] = await _find_topic(one, request.follower >= 0, context)
        if not isinstance(topic, Topic):
            one.topic, rows[one] = None, _refusal(one.request, topic)
        elif 0 <= one.request.partition < topic.partitions:
            one.topic, rows[one] = topic, PartitionFetch(topic, one.request)
        else:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            one.topic, rows[one] = None, _refusal(one.request, error)
    return rows


async def _find_topic(
    one: FetchedPartition, is_follower: bool, context: Context
) -> Topic | ErrorCode:
    """Return the partition's topic, or why the client cannot read it."""
    by_id = context.version >= TOPIC_IDS_SINCE
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if not by_id and not _may_read(context, one.name, is_follower):
        return denied
    try:
        if by_id:
            topic, unknown = await context.topics.get_id(one.topic_id), ErrorCode.UNKNOWN_TOPIC_ID
        else:
            topic = await context.topics.get_readable(one.name)
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    except StoreUnavailable:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if topic is None:
        return unknown
    return denied if by_id and not _may_read(context, topic.name, is_follower) else topic
