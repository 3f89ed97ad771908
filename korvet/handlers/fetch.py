"""Fetch (key 1), versions 0-18. Records from an offset on, waiting for them when there are few.

Behaviour
- per partition: OFFSET_OUT_OF_RANGE below the stored log start or above the end (now, in time mode
  on a Redis that has taken over from another), anything between gives the next records there are;
  UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, FENCED_LEADER_EPOCH and UNKNOWN_LEADER_EPOCH
- max_bytes and partition_max_bytes hold, but the first batch there is always comes whole
- with fewer than min_bytes, and no more than that there, the answer waits, at most max_wait_ms; an
  append through any broker ends the wait, a native XADD is noticed within 200 ms (of more than 100
  partitions of layout record: 2 ms each), or by the next fetch; more than 64 KiB are not kept while
  an answer waits, but read again, and native ones then noticed at its end
- read_committed ends at the last stable offset and names the aborted transactions there are
- KAFKA_STORAGE_ERROR while Redis is away; where there is nothing else to tell, 200 ms later if
  max_wait_ms allows
- no fetch sessions: session id 0, every request names its partitions (KIP-227 allows it);
  FETCH_SESSION_ID_NOT_FOUND for one that goes on with a session
Versions
- 0-1 answers message sets v0, 2-3 v1, from 4 on batches; v7 sessions, v9 leader epochs, v10 zstd,
  v12 flexible, v13 topic ids
Left out
- replica ids: a follower is answered like a consumer; preferred replicas; diverging epochs
"""

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from time import monotonic
from typing import Any

from korvet.context import Context
from korvet.errors import ErrorCode
from korvet.fetch.partitions import (
    BY_ID,
    MOST_WAITING,
    PartitionFetch,
    collect,
    collect_again,
    grown,
    note_replica,
    shed,
    suffices,
)
from korvet.store.errors import StoreUnavailable
from korvet.topics.table import Topic
from korvet.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

WHOLE = (0, -1)
"""The epochs of a fetch that names all its partitions; others go on with a session."""
NATIVE_RECHECK_S = 0.2
AWAY_PAUSE_S = 0.2
"""How long a fetch that Redis's absence has failed waits with saying so."""
SOON = 1 << 12
"""Who waits for so few bytes is answered at any news; of others it is asked first how many came."""
NATIVE_AT_ONCE = 100
"""Looking at so many partitions is worth NATIVE_RECHECK_S; more are looked at less often."""


def fetch(request: FetchRequest, context: Context) -> Coroutine[Any, Any, FetchResponse]:
    """Reads change nothing: the connection's next request may begin at once."""
    context.release()
    if request.replica_id != -1:
        note_replica(request.replica_id, context)
    return _fetch(request, context)


async def _fetch(request: FetchRequest, context: Context) -> FetchResponse:
    if request.session_epoch not in WHOLE:
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=[])
    wanted: list[PartitionFetch] = []
    rows = [await _prepare(topic, wanted, context) for topic in request.topics]
    deadline = monotonic() + max(request.max_wait_ms, 0) / 1000
    heard = context.notifier.message_count
    size, enough = await collect(wanted, request, context)
    if size < request.min_bytes and not enough and request.max_wait_ms > 0 and wanted:
        await _wait(wanted, request, context, deadline, heard)
    if _only_absence(wanted, rows):  # clients come back from this error at once
        await asyncio.sleep(max(0.0, min(AWAY_PAUSE_S, deadline - monotonic())))
    _count(wanted, context)
    return FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic=data.topic,
                topic_id=data.topic_id,
                partitions=[row for row in map(_answer_of, found) if row is not None],
            )
            for data, found in zip(request.topics, rows, strict=True)
        ]
    )


def _only_absence(
    wanted: Sequence[PartitionFetch], rows: Iterable[Iterable[PartitionFetch | PartitionData]]
) -> bool:
    """Whether there is nothing to tell but that Redis is away."""
    if any(row.size for row in wanted):
        return False
    found = (_answer_of(row) for part in rows for row in part)
    return any(each and each.error_code == ErrorCode.KAFKA_STORAGE_ERROR for each in found)


def _count(wanted: Sequence[PartitionFetch], context: Context) -> None:
    metrics = context.services.metrics
    metrics.records_out.add(sum(row.records for row in wanted))
    metrics.record_bytes_out.add(sum(row.size for row in wanted))


def _answer_of(row: PartitionFetch | PartitionData) -> PartitionData | None:
    return row.answer if isinstance(row, PartitionFetch) else row


async def _prepare(
    data: FetchTopic, wanted: list[PartitionFetch], context: Context
) -> list[PartitionFetch | PartitionData]:
    """The topic's partitions: refused, or to be read and then also in `wanted`."""
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topic: Topic | None = None
    try:
        if context.version >= BY_ID:
            topic, unknown = await context.topics.get_id(data.topic_id), ErrorCode.UNKNOWN_TOPIC_ID
        else:
            topic = await context.topics.get(data.topic)
    except StoreUnavailable:
        unknown = ErrorCode.KAFKA_STORAGE_ERROR
    rows: list[PartitionFetch | PartitionData] = []
    for partition in data.partitions:
        if topic is not None and 0 <= partition.partition < topic.partitions:
            row = PartitionFetch(topic, partition)
            wanted.append(row)
            rows.append(row)
            continue
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is not None else unknown
        rows.append(
            PartitionData(
                partition_index=partition.partition,
                error_code=error,
                high_watermark=-1,
                records=[],
            )
        )
    return rows


async def _wait(
    wanted: Sequence[PartitionFetch],
    request: FetchRequest,
    context: Context,
    deadline: float,
    heard: int,
) -> None:
    """Until there are `min_bytes` or more than fits, an error, or no time left. Looked at again is
    only what had news since the wake had heard so much: at its channel, or perhaps by a native
    XADD. What is there is not kept meanwhile, where that is much."""
    rows: dict[str, list[int]] = {}
    for at, row in enumerate(wanted):
        channel = context.keys.partition(row.topic.name, row.asked.partition).channel
        rows.setdefault(channel, []).append(at)
    native = [at for at, row in enumerate(wanted) if not row.topic.is_batch]
    every = NATIVE_RECHECK_S * max(1.0, len(native) / NATIVE_AT_ONCE)
    due = monotonic() + every if native else deadline
    behind, enough = set[int](), False
    async with context.notifier.listen(sorted(rows), heard) as bell:
        while not enough:
            shed(wanted)
            news = await bell.wait(min(due, deadline) - monotonic())
            fresh = [at for channel in news for at in rows[channel]]
            behind.update(fresh)
            now = monotonic()
            stale = set(behind)
            if stale and request.min_bytes > SOON and now < deadline:
                known = await grown([wanted[at] for at in fresh], context)
                if known and not suffices(wanted, request, context):
                    stale.clear()
            if native and now >= due:
                stale.update(at for at in native if wanted[at].size <= MOST_WAITING)
                due = now + every
            if stale:
                looked_at = [wanted[at] for at in sorted(stale)]
                held = sum(row.size for at, row in enumerate(wanted) if at not in stale)
                size, enough = await collect(looked_at, request, context, held)
                enough = enough or size >= request.min_bytes
                behind -= stale
            enough = enough or now >= deadline
    await collect_again(wanted, request, context)
