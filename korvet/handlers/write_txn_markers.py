"""WriteTxnMarkers. End hanging transactions in partitions.

Behaviour
- for administrators (`kafka-transactions.sh abort`, KIP-664): brokers do not use it to write the
  markers of ended transactions. It ends the producer's open transaction in a partition if no
  transactional id has a transaction of that number with that partition in it
- per partition: UNKNOWN_TOPIC_OR_PARTITION; INVALID_PRODUCER_EPOCH for an epoch below the stored
  one or below 0; TRANSACTION_COORDINATOR_FENCED for a coordinator epoch below the stored one;
  INVALID_TXN_STATE while a transactional id has the transaction: EndTxn or its timeout will end it.
  Kafka writes the marker nevertheless, and splits the transaction
- NONE if the producer has no open transaction: no marker is written, and its epoch stays
- one row per producer, as in Kafka, even if several markers name it
Versions
- v1 flexible, v2 transaction version: from 2 on the epoch must be above the stored one
Left out
- the coordinator epoch is not stored: there is one coordinator, and its epoch is 0
"""

from collections.abc import Iterator
from time import time

import msgspec

from korvet.base.errors import TOPIC_GONE, ErrorCode
from korvet.context import Context
from korvet.scripts.calls.partition import AbortHangingTxnReply
from korvet.topics.table import Topic, TopicTable
from korvet.transactions.hanging import Participation
from korvet.transactions.members import partition_member
from korvet.wire import control_records
from korvet.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from korvet.wire.structs import PartitionError, TopicErrors

RAISED_SINCE = 2
"""The transaction version from which on each transaction, and its end, has its own epoch."""
UNNAMED = -1


class _Asked(msgspec.Struct, frozen=True):
    """Marker of one producer for one partition."""

    topic: str
    partition: int
    marker: WritableTxnMarker


async def write_txn_markers(
    request: WriteTxnMarkersRequest, context: Context
) -> WriteTxnMarkersResponse:
    rows = [(asked, await _find_open(asked, context)) for asked in _requests(request)]
    parts = [found for _, found in rows if isinstance(found, Participation)]
    owned = await context.services.hanging_transactions.find_owned(parts)
    answers: dict[int, dict[str, dict[int, ErrorCode]]] = {}
    for asked, found in rows:
        error = (
            await _abort(asked, found, owned, context)
            if isinstance(found, Participation)
            else found
        )
        of_producer = answers.setdefault(asked.marker.producer_id, {})
        of_producer.setdefault(asked.topic, {})[asked.partition] = error
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=producer_id,
                topics=[
                    TopicErrors(
                        name=name,
                        partitions=[
                            PartitionError(partition_index=n, error_code=error)
                            for n, error in of.items()
                        ],
                    )
                    for name, of in topics.items()
                ],
            )
            for producer_id, topics in answers.items()
        ]
    )


def _requests(request: WriteTxnMarkersRequest) -> Iterator[_Asked]:
    for marker in request.markers:
        places = ((of.name, number) for of in marker.topics for number in of.partition_indexes)
        for partition in dict.fromkeys(places):
            yield _Asked(*partition, marker)


async def _find_open(asked: _Asked, context: Context) -> ErrorCode | Participation:
    """Return the error to answer, or the open transaction whose owner must be looked up."""
    topic = await _topic(asked, context.topics)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if asked.marker.producer_epoch < 0:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    reply = await _call_script(asked, topic, UNNAMED, context)
    if not reply.error and reply.transaction != UNNAMED:
        member = partition_member(asked.topic, asked.partition)
        return Participation(asked.marker.producer_id, reply.transaction, member)
    return _error_of(reply, context.topics)


async def _abort(
    asked: _Asked, part: Participation, owned: set[Participation], context: Context
) -> ErrorCode:
    if part in owned:
        return ErrorCode.INVALID_TXN_STATE
    topic = await _topic(asked, context.topics)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    reply = await _call_script(asked, topic, part.transaction, context)
    return _error_of(reply, context.topics)


async def _topic(asked: _Asked, topics: TopicTable) -> Topic | None:
    """Return the topic, None if it has no such partition."""
    topic = await topics.get(asked.topic)
    return topic if topic is not None and 0 <= asked.partition < topic.partitions else None


def _error_of(reply: AbortHangingTxnReply, topics: TopicTable) -> ErrorCode:
    if reply.error in TOPIC_GONE:
        topics.invalidate()
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode(reply.error)


async def _call_script(
    asked: _Asked, topic: Topic, number: int, context: Context
) -> AbortHangingTxnReply:
    marker = asked.marker
    committed = marker.transaction_result
    fields = control_records.entry_of(
        int(time() * 1000),
        marker.producer_id,
        marker.producer_epoch,
        committed,
        is_batch=topic.is_batch,
    )
    return await context.store.run(
        topic.partition(asked.partition).abort_hanging_txn(
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            raised=int(marker.transaction_version >= RAISED_SINCE),
            transaction=number,
            committed=int(committed),
            size=sum(map(len, fields)),
            fields=fields,
        )
    )
