"""The appends of one Produce request, in flight together, and the response to it.

Rules
- The response is `Deferred` until every append has its reply. It is made without a task if all
  batches are stored; a rejection may need another round trip for its reason.
- With acks=0 a rejected batch closes the connection, as in Kafka. Otherwise the client would
  continue with later batches for a recreated topic, or while Redis is down.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from korvet.base import logfmt
from korvet.base.deferred import NOT_READY, CloseWithoutResponse, Deferred, NotReady
from korvet.base.errors import TOPIC_GONE, ErrorCode
from korvet.log.scheduled import limit_reason
from korvet.produce.append import TOPIC_IDS_SINCE, PartitionAppend, PartitionAppender
from korvet.scripts.calls.partition import AppendReply
from korvet.store.errors import StoreError, StoreUnavailable, ValueTooLarge
from korvet.topics.table import Topic, TopicTable
from korvet.transactions.add_partitions import EnlistedPartitions, producer_of
from korvet.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from korvet.wire.records import Buffer

Row: TypeAlias = PartitionProduceResponse | PartitionAppend
"""A partition of the request: rejected before it was sent, or in flight."""
WRONG_HEADER = (
    "A record with korvet-dedupe-id or korvet-expected-offset is not part of a transaction. The id "
    "has at most 128 bytes; the offset is an integer, the record has a key, and the topic "
    "table.offsets.enable."
)

logger = logfmt.get("produce")


class RequestAppend(PartitionAppend):
    """An append whose reply counts for a request's response."""

    __slots__ = ("_in_flight",)

    def __init__(
        self, in_flight: "ProduceInFlight", topic: Topic, index: int, data: Buffer
    ) -> None:
        super().__init__(in_flight.appender, topic, index, data, in_flight.version)
        self._in_flight = in_flight

    def finished(self, stored: AppendReply | None) -> None:
        """Count the reply."""
        self._in_flight.finished(stored=stored is not None)


@dataclass(eq=False, repr=False)
class ProduceInFlight:
    """The appends of one request: rows in the request's order, then the response."""

    request: ProduceRequest
    version: int
    appender: PartitionAppender
    topics: TopicTable
    enlisted: EnlistedPartitions
    opened: Callable[[int], None] | None = None

    def __post_init__(self) -> None:
        self._rows: list[tuple[TopicProduceData, list[Row]]] = []
        self._missing = 1
        self._all_stored = True
        self._replied: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def rows_for(self, data: TopicProduceData) -> list[Row]:
        """Return the list for the rows of the request's next topic."""
        rows: list[Row] = []
        self._rows.append((data, rows))
        return rows

    def expect_reply(self) -> None:
        """Count an append whose reply the response waits for."""
        self._missing += 1

    def finished(self, *, stored: bool) -> None:
        """Count the end of an append."""
        self._all_stored = self._all_stored and stored
        self._missing -= 1
        if not self._missing and not self._replied.done():
            self._replied.set_result(None)

    def response(self) -> Deferred[ProduceResponse | None]:
        """Return the response to await. All rows have been added."""
        self.finished(stored=True)
        return Deferred(self._replied, self._at_once, self._slowly)

    def _at_once(self) -> ProduceResponse | NotReady | None:
        if not self._all_stored or (not self.request.acks and self._rejected_any()):
            return NOT_READY
        return self._respond(
            [
                [self._stored(row) if isinstance(row, PartitionAppend) else row for row in rows]
                for _, rows in self._rows
            ]
        )

    async def _slowly(self) -> ProduceResponse | None:
        await self._replied
        return self._respond(
            [
                [await self._row(row) if isinstance(row, PartitionAppend) else row for row in rows]
                for _, rows in self._rows
            ]
        )

    def _rejected_any(self) -> bool:
        """Return whether a batch was rejected before it was sent."""
        return any(not isinstance(row, PartitionAppend) for _, rows in self._rows for row in rows)

    def _respond(self, rows: list[list[PartitionProduceResponse]]) -> ProduceResponse | None:
        if not self.request.acks:
            self._close_if_rejected(rows)
            return None
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=data.name, topic_id=data.topic_id, partition_responses=partitions
                )
                for (data, _), partitions in zip(self._rows, rows, strict=True)
            ]
        )

    def _close_if_rejected(self, rows: list[list[PartitionProduceResponse]]) -> None:
        """Raise CloseWithoutResponse unless every batch is stored."""
        for (data, _), partitions in zip(self._rows, rows, strict=True):
            for row in partitions:
                if row.error_code:
                    partition = f"{data.name or data.topic_id}-{row.index}"
                    error = ErrorCode(row.error_code).name
                    raise CloseWithoutResponse(
                        f"a batch sent with acks=0 is not stored: {partition}: {error}"
                    )

    async def _row(self, append: PartitionAppend) -> PartitionProduceResponse:
        error = append.error
        if isinstance(error, ValueTooLarge):
            return rejection(append.index, ErrorCode.MESSAGE_TOO_LARGE, str(error))
        if isinstance(error, StoreError):
            if not isinstance(error, StoreUnavailable):
                logger.error_again("append failed in Redis", topic=append.topic.name, error=error)
            return rejection(append.index, ErrorCode.KAFKA_STORAGE_ERROR)
        if error is not None:
            raise error
        if append.reply is not None and append.reply.error:
            if append.reply.error == ErrorCode.POLICY_VIOLATION:
                reason = limit_reason(append.topic)
                return rejection(append.index, ErrorCode.POLICY_VIOLATION, reason)
            if append.reply.error == ErrorCode.INVALID_RECORD:
                return rejection(append.index, ErrorCode.INVALID_RECORD, WRONG_HEADER)
            if append.reply.error == ErrorCode.INVALID_UPDATE_VERSION:
                reason = f"The newest record of a key has the offset {append.reply.base}, -1: none."
                return rejection(append.index, ErrorCode.INVALID_UPDATE_VERSION, reason)
            return rejection(append.index, await self._reason(append, append.reply.error))
        return self._stored(append)

    def _stored(self, append: PartitionAppend) -> PartitionProduceResponse:
        reply = append.reply
        assert reply is not None
        self.appender.stored(append, reply)
        return PartitionProduceResponse(
            index=append.index,
            error_code=0,
            base_offset=reply.base,
            log_append_time_ms=reply.append_time,
            log_start_offset=reply.start,
        )

    async def _reason(self, append: PartitionAppend, code: int) -> ErrorCode:
        """Return the error to answer for a rejection by log.append."""
        error, transactional_id = ErrorCode(code), self.request.transactional_id
        if error in TOPIC_GONE:
            self.topics.invalidate()
            # A client that names topics by name does not know UNKNOWN_TOPIC_ID.
            by_id = self.version >= TOPIC_IDS_SINCE
            return error if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if error != ErrorCode.INVALID_TXN_STATE or transactional_id is None:
            return error
        producer = producer_of(transactional_id, append.data)
        if producer is None:
            return error
        return await self.enlisted.why_rejected(
            producer, append.topic.name, append.index, self.version
        )


def rejection(
    index: int,
    error: ErrorCode,
    reason: str | None = None,
    record_errors: Sequence[tuple[int, str]] = (),
) -> PartitionProduceResponse:
    """Return the response for a partition whose batch is not stored."""
    return PartitionProduceResponse(
        index=index,
        error_code=error,
        base_offset=-1,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=at, batch_index_error_message=why)
            for at, why in record_errors
        ],
        error_message=reason or error.message,
    )
