"""ShareFetch. Acquire records for a member of a share group (KIP-932).

Behaviour
- share sessions by group and member, in this broker's memory: epoch 0 opens one, -1 closes it and
  releases the member's records, and so does the end of the connection that opened it;
  SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH, SHARE_SESSION_LIMIT_REACHED
- acknowledgements are done first, as in ShareAcknowledge; INVALID_REQUEST with epoch 0
- records are acquired by a script on the partition, which any broker can serve; locks are in Redis
  and expire by its clock; membership of the group is not checked, as in Kafka
- mode 0, batch-optimized, takes whole batches until max_records are reached; mode 1, record-limit,
  never more; layout `record` never takes more in either mode
- as in Kafka, records that were delivered half as often as the limit come alone, half as many at
  once with each delivery, and one by one the last time
- without records the response waits, at most max_wait_ms: an append, released records, a expired
  lock or the end of a delay end the wait; a foreign XADD is noticed within 200 ms
- with min_bytes above 1 it waits, and acquires nothing, until the log has as many bytes from the
  group's next record on in all partitions; after max_wait_ms it has what there is; with min_bytes 0
  it does not wait
- batch_size, of mode 0: an acquired range ends at the first batch that begins as many offsets
  after the range's first; it changes neither which records are acquired nor the number of locks
- read_committed (share.isolation.level) ends at the last stable offset and passes the records of
  aborted transactions
- per partition: UNKNOWN_TOPIC_ID (Kafka 4.3: UNKNOWN_SERVER_ERROR of the request),
  UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED, INVALID_TOPIC_EXCEPTION for a topic with
  offset.mode=bytes, KAFKA_STORAGE_ERROR while Redis is unreachable
- a partition without an error, records or acknowledgements is left out, unless the request adds it
  to the session
Versions
- v2 acquire modes (KIP-1206), renewal of locks (KIP-1222)
"""

import asyncio
from collections.abc import Iterable
from functools import partial
from uuid import UUID

from korvet.base.errors import ErrorCode
from korvet.base.metrics import Metrics
from korvet.context import Context
from korvet.fetch.sessions import CLOSE, OPEN, SessionError
from korvet.groups.share_group import ShareGroupConfig
from korvet.security.acl import Operation, ResourceType
from korvet.share.acquire_values import Acquired, Budget, ShareFetchParams
from korvet.share.delayed import DelayedShareFetch, SharedPartition
from korvet.share.service import Acknowledger
from korvet.share.sessions import SharePartitionId, ShareSession, Targets
from korvet.topics.table import Topic
from korvet.wire.messages.share_fetch import (
    AcquiredRecords,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)

RECORD_LIMIT = 1
"""Acquire mode: never more than max_records."""
STORAGE_ERROR_PAUSE_S = 0.2
"""Delay of a response without anything but KAFKA_STORAGE_ERROR: clients repeat it at once."""

Rows = dict[SharePartitionId, PartitionData | None]
"""The rows of the response; None: nothing to say of a partition that is new to the session."""


async def share_fetch(request: ShareFetchRequest, context: Context) -> ShareFetchResponse:
    group, member = request.group_id, request.member_id
    if group is None or not member or _is_invalid(request):
        return ShareFetchResponse.of(ErrorCode.INVALID_REQUEST)
    services, epoch = context.services, request.share_session_epoch
    named = [
        (row.topic_id, one.partition_index) for row in request.topics for one in row.partitions
    ]
    try:
        if epoch == OPEN:
            session = services.share.sessions.open(group, member, context.session)
        else:
            session = services.share.sessions.take(group, member, epoch)
        added = [] if epoch == CLOSE else session.add(named)
    except SessionError as error:
        return ShareFetchResponse.of(error.error)
    if epoch != CLOSE:
        session.forget(
            (row.topic_id, one) for row in request.forgotten_topics_data for one in row.partitions
        )
    config = services.share.config(group)
    targets = Targets(
        context.topics, lambda name: context.allows(Operation.READ, ResourceType.TOPIC, name)
    )
    acknowledging = _acknowledge(request, session, config, targets, services.share.acknowledger)
    if epoch == CLOSE or request.is_renew_ack:
        rows = await acknowledging
        if epoch == CLOSE:
            await services.share.sessions.close(session)
    else:
        # Redis does the acknowledgements first, in the order of the calls.
        rows, fetched = await asyncio.gather(
            acknowledging, _fetch(request, session, config, targets, context)
        )
        rows = {**dict.fromkeys(added), **rows}
        for where, acquired in fetched.items():
            _put(rows, where, acquired)
    return ShareFetchResponse(
        acquisition_lock_timeout_ms=config.record_lock_duration_ms, responses=_by_topic(rows)
    )


def _is_invalid(request: ShareFetchRequest) -> bool:
    """Return whether the request contradicts itself."""
    has_batches = any(
        one.acknowledgement_batches for row in request.topics for one in row.partitions
    )
    if request.share_session_epoch == OPEN and has_batches:
        return True
    if request.share_acquire_mode not in (0, RECORD_LIMIT):
        return True
    limits = (request.max_wait_ms, request.min_bytes, request.max_bytes, request.max_records)
    return request.is_renew_ack and any(limits)


async def _acknowledge(
    request: ShareFetchRequest,
    session: ShareSession,
    config: ShareGroupConfig,
    targets: Targets,
    acknowledger: Acknowledger,
) -> Rows:
    """Do the request's acknowledgements; return their rows."""
    acknowledged = await acknowledger.acknowledge_each(
        session, config, targets, request.topics, renews=request.is_renew_ack
    )
    return {
        where: PartitionData(
            partition_index=where[1],
            acknowledge_error_code=error,
            acknowledge_error_message=error.message if error else None,
            records=[],
        )
        for where, error in acknowledged
    }


async def _fetch(
    request: ShareFetchRequest,
    session: ShareSession,
    config: ShareGroupConfig,
    targets: Targets,
    context: Context,
) -> dict[SharePartitionId, Acquired]:
    """Acquire records of the session's partitions; return those with records or an error."""
    await asyncio.sleep(0)
    services = context.services
    refused: dict[SharePartitionId, ErrorCode] = {}
    partitions: dict[SharePartitionId, SharedPartition] = {}
    for where in session.partitions:
        topic = await targets.find(*where)
        if isinstance(topic, Topic):
            partitions[where] = SharedPartition(topic, where[1], Acquired())
        else:
            refused[where] = topic
    session.seen.update(partitions)
    session.rotate()
    if request.max_records > 0:
        acquirer = services.share.acquirer
        max_bytes = acquirer.max_bytes(request.max_bytes)
        params = ShareFetchParams(
            session.group,
            session.member,
            config,
            exact=request.share_acquire_mode == RECORD_LIMIT,
            batch_size=request.batch_size,
            min_bytes=min(request.min_bytes, max_bytes),
        )
        fetch = DelayedShareFetch(
            context.notifier,
            list(partitions.values()),
            0 if refused or request.min_bytes <= 0 else request.max_wait_ms,
            acquirer,
            params,
            Budget(request.max_records, max_bytes),
            partial(_refusal_of, session.group, context),
        )
        await fetch.run()
        if fetch.only_storage_errors():
            await asyncio.sleep(min(STORAGE_ERROR_PAUSE_S, fetch.remaining_s))
    _count(partitions.values(), services.metrics)
    found = {where: Acquired(error) for where, error in refused.items()}
    for where, one in partitions.items():
        if one.acquired.error or one.acquired.runs:
            found[where] = one.acquired
    return found


def _refusal_of(group: str, context: Context, topic: str) -> ErrorCode:
    """Return why the client may not read the topic for its group, NONE if it may."""
    if not context.allows(Operation.READ, ResourceType.GROUP, group):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    if not context.allows(Operation.READ, ResourceType.TOPIC, topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.NONE


def _put(rows: Rows, where: SharePartitionId, acquired: Acquired) -> None:
    """Add what was acquired to the partition's row."""
    known = rows.get(where)
    rows[where] = PartitionData(
        partition_index=where[1],
        error_code=acquired.error,
        error_message=acquired.error.message if acquired.error else None,
        acknowledge_error_code=known.acknowledge_error_code if known else ErrorCode.NONE,
        acknowledge_error_message=known.acknowledge_error_message if known else None,
        records=list(acquired.records),
        acquired_records=[
            AcquiredRecords(first_offset=first, last_offset=last, delivery_count=deliveries)
            for first, last, deliveries in acquired.runs
        ],
    )


def _count(partitions: Iterable[SharedPartition], metrics: Metrics) -> None:
    for one in partitions:
        runs = one.acquired.runs
        metrics.records_out.add(sum(last - first + 1 for first, last, _ in runs))
        metrics.record_bytes_out.add(sum(map(len, one.acquired.records)))


def _by_topic(rows: Rows) -> list[ShareFetchableTopicResponse]:
    topics: dict[UUID, list[PartitionData]] = {}
    for (topic_id, partition), row in rows.items():
        empty = PartitionData(partition_index=partition, records=[])
        topics.setdefault(topic_id, []).append(row or empty)
    return [
        ShareFetchableTopicResponse(topic_id=topic_id, partitions=found)
        for topic_id, found in topics.items()
    ]
