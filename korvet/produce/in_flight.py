"""What one Produce request appends, under way together, and the answer to it.

Rules
- The answer is made once each append has its reply, whatever that is: `Deferred`, unless one was
  not taken and why must be asked for.
- A batch that was taken is counted, and kept for who reads it next, before its answer leaves.
- Who wants no answer learns by the end of its connection that a batch was not taken, as from Kafka:
  else it would send others after it, to a topic that is another by now or to a Redis that is away.
- What an unknown producer sends is asked for again as `beginnings` says, right where the refusal
  comes in: in the order in which it was refused.
"""

import asyncio
from collections.abc import Sequence
from typing import TypeAlias

from msgspec.structs import replace

from korvet import logfmt
from korvet.context import Context
from korvet.deferred import NOT_READY, CloseWithoutResponse, Deferred, NotReady
from korvet.errors import TOPIC_GONE, ErrorCode
from korvet.fetch.partitions import reader
from korvet.produce.unknown_producers import Beginner, Verdict
from korvet.scripts.call import Call
from korvet.scripts.log import AppendReply, begun_by, count_of, sequence_of
from korvet.store.errors import StoreError, StoreUnavailable
from korvet.topics.table import Topic
from korvet.transactions.add_partitions import joined, producer_of, why_outside
from korvet.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from korvet.wire.records import HEADER_SIZE, MAGIC_AT, Buffer, read_header

BY_ID = 13
"""The version from which on Produce names topics by their ids."""
OFTEN = 3
"""So many times a batch of an unknown producer is asked for, should others always come between."""

COMES_AGAIN = frozenset(
    {error for error in ErrorCode if error.retriable} | {ErrorCode.MESSAGE_TOO_LARGE}
)
"""After these a producer sends the batch again, as it was or in parts."""

logger = logfmt.get("produce")


class PartitionAppend:
    """One partition's append; takes its reply as a future would."""

    __slots__ = ("_of", "call", "data", "error", "index", "reply", "topic", "tries")

    def __init__(
        self, of: "ProduceInFlight", topic: Topic, index: int, data: Buffer, call: Call[AppendReply]
    ) -> None:
        self._of = of
        self.topic = topic
        self.index = index
        self.data = data
        self.call = call
        self.reply: AppendReply | None = None
        self.error: BaseException | None = None
        self.tries = 1

    def done(self) -> bool:
        """Never before its reply."""
        return False

    def set_result(self, reply: AppendReply) -> None:
        """Redis took the batch, or said why not."""
        if self.tries > 1:
            self._of.heard(self)
        if reply.error:
            self._of.refused(self, reply)
            return
        self.reply = reply
        self._of.arrived(odd=False)

    def set_exception(self, error: BaseException) -> None:
        """There is no reply, and this is why."""
        if self.tries > 1:
            self._of.heard(self)
        self.error = error
        self._of.failed(self)


Row: TypeAlias = PartitionProduceResponse | PartitionAppend


class ProduceInFlight:
    """The appends of one request. Rows are added topic by topic, partition by partition, in the
    order of the request, and then the answer is asked for."""

    def __init__(self, request: ProduceRequest, context: Context) -> None:
        self._request = request
        self._context = context
        self._topics: list[tuple[TopicProduceData, list[Row]]] = []
        self._missing = 1
        self._odd = False
        self._there: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def of_topic(self, data: TopicProduceData) -> list[Row]:
        """Where the rows of the request's next topic go."""
        rows: list[Row] = []
        self._topics.append((data, rows))
        return rows

    def expect(
        self, topic: Topic, index: int, data: Buffer, call: Call[AppendReply]
    ) -> PartitionAppend:
        """The append of what the request has for that partition; it is waited for from now on."""
        self._missing += 1
        return PartitionAppend(self, topic, index, data, call)

    def arrived(self, *, odd: bool) -> None:
        """An append has its reply; odd: the batch was not taken."""
        self._odd = self._odd or odd
        self._missing -= 1
        if not self._missing and not self._there.done():
            self._there.set_result(None)

    def refused(self, row: PartitionAppend, reply: AppendReply) -> None:
        """Redis said why it did not take the batch; it may have to be asked again."""
        error = ErrorCode(reply.error)
        call = self._next_call(row, error)
        if call is not None:
            self._ask_again(row, call)
            return
        if error == ErrorCode.UNKNOWN_PRODUCER_ID:
            reply = replace(reply, error=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        elif error.retriable:
            self._comes_again(row)
        elif row.tries > 1:
            self._context.services.unknown_producers.known(self._beginner(row)[0])
        row.reply = reply
        self.arrived(odd=True)

    def failed(self, row: PartitionAppend) -> None:
        """Nobody knows whether Redis took the batch."""
        self._comes_again(row)
        self.arrived(odd=True)

    def heard(self, row: PartitionAppend) -> None:
        """There is a reply to a batch that was asked for again, or will be none."""
        self._context.services.unknown_producers.heard(self._beginner(row)[0])

    def _ask_again(self, row: PartitionAppend, call: Call[AppendReply]) -> None:
        self._context.services.unknown_producers.asks(self._beginner(row)[0])
        row.tries += 1
        row.call = call
        self._context.store.send(call, row)

    def _next_call(self, row: PartitionAppend, error: ErrorCode) -> Call[AppendReply] | None:
        """What is asked next of a partition that does not know the producer, or did not when what
        is before this batch came there; None for nothing."""
        beginnings = self._context.services.unknown_producers
        who, sequence = self._beginner(row)
        again = error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and beginnings.is_asking(who)
        if error == ErrorCode.UNKNOWN_PRODUCER_ID:
            step = beginnings.step(who, sequence)
            if step == Verdict.BEGIN:
                return begun_by(row.call)
            again = step == Verdict.REPEAT
        return row.call if again and row.tries < OFTEN else None

    def _comes_again(self, row: PartitionAppend) -> None:
        who, sequence = self._beginner(row)
        if sequence >= 0:
            self._context.services.unknown_producers.comes_again(who, sequence)

    def _beginner(self, row: PartitionAppend) -> tuple[Beginner, int]:
        """Who sent the batch, and its sequence: -1 of a producer without."""
        producer_id, epoch, sequence = sequence_of(row.call)
        return (_word_of(row.topic, self._context), row.index, producer_id, epoch), sequence

    def answer(self) -> Deferred[ProduceResponse | None]:
        """All rows are there."""
        self.arrived(odd=False)
        return Deferred(self._there, self._at_once, self._slowly)

    def _at_once(self) -> ProduceResponse | NotReady | None:
        if self._odd or (not self._request.acks and self._refused()):
            return NOT_READY
        return self._response(
            [
                [self._stored(row) if isinstance(row, PartitionAppend) else row for row in rows]
                for _, rows in self._topics
            ]
        )

    async def _slowly(self) -> ProduceResponse | None:
        await self._there
        return self._response(
            [
                [await self._told(row) if isinstance(row, PartitionAppend) else row for row in rows]
                for _, rows in self._topics
            ]
        )

    def _refused(self) -> bool:
        """Whether a batch was not even sent to Redis."""
        return any(not isinstance(row, PartitionAppend) for _, rows in self._topics for row in rows)

    def _check(self, told: list[list[PartitionProduceResponse]]) -> None:
        """Everything was taken, or CloseWithoutResponse."""
        for (data, _), rows in zip(self._topics, told, strict=True):
            for row in rows:
                if row.error_code:
                    place = f"{data.name or data.topic_id}-{row.index}"
                    error = ErrorCode(row.error_code).name
                    raise CloseWithoutResponse(
                        f"a batch sent with acks=0 is not stored: {place}: {error}"
                    )

    def _response(self, told: list[list[PartitionProduceResponse]]) -> ProduceResponse | None:
        if not self._request.acks:
            self._check(told)
            return None
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=data.name, topic_id=data.topic_id, partition_responses=rows
                )
                for (data, _), rows in zip(self._topics, told, strict=True)
            ]
        )

    async def _told(self, row: PartitionAppend) -> PartitionProduceResponse:
        if isinstance(row.error, StoreError):
            if not isinstance(row.error, StoreUnavailable):
                why = row.error
                logger.error_again("an append failed in Redis", topic=row.topic.name, error=why)
            return refusal(row.index, ErrorCode.KAFKA_STORAGE_ERROR)
        if row.error is not None:
            raise row.error
        if row.reply is not None and row.reply.error:
            return refusal(row.index, await self._reason(row, ErrorCode(row.reply.error)))
        return self._stored(row)

    def _stored(self, row: PartitionAppend) -> PartitionProduceResponse:
        reply = row.reply
        assert reply is not None
        noted(row.topic, row.index, row.call, reply, len(row.data), self._context)
        return PartitionProduceResponse(
            index=row.index,
            error_code=0,
            base_offset=reply.base,
            log_append_time_ms=reply.append_time,
            log_start_offset=reply.start,
        )

    async def _reason(self, row: PartitionAppend, error: ErrorCode) -> ErrorCode:
        """Why nothing was appended; for a stranger to the transaction, in what it is one."""
        context, transactional_id = self._context, self._request.transactional_id
        if error in TOPIC_GONE:
            context.topics.drop()
            # Whoever asks by name does not know that topics have ids.
            by_id = context.version >= BY_ID
            return error if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if error != ErrorCode.INVALID_TXN_STATE or transactional_id is None:
            return error
        producer = producer_of(transactional_id, row.data)
        if producer is None:
            return error
        # What is remembered of it may be a transaction that another broker has ended.
        joined(context).forget(producer)
        return await why_outside(producer, row.topic.name, row.index, context)


def noted(
    topic: Topic,
    index: int,
    call: Call[AppendReply],
    reply: AppendReply,
    size: int,
    context: Context,
) -> None:
    """A batch of so many bytes that Redis took is counted, and kept for who reads it next."""
    beginnings = context.services.unknown_producers
    if beginnings:
        producer_id, epoch, _ = sequence_of(call)
        beginnings.known((_word_of(topic, context), index, producer_id, epoch))
    context.services.metrics.appended(count_of(call) if reply.stored else 0, size)
    if reply.stored and topic.is_batch and reply.append_time < 0:
        reader(context).appended(topic, index, reply.previous, reply.base, call)


def refuse(
    data: TopicProduceData,
    row: PartitionProduceData,
    error: ErrorCode,
    context: Context,
    reason: str | None = None,
    blamed: Sequence[tuple[int, str]] = (),
) -> PartitionProduceResponse:
    """What is said of a partition whose batch is not given to Redis."""
    batch = row.records or b""
    if error in COMES_AGAIN and len(batch) >= HEADER_SIZE and batch[MAGIC_AT] == 2:
        header = read_header(batch)
        if header.producer_id >= 0:
            word = data.topic_id.hex if context.version >= BY_ID else data.name
            who = (word, row.index, header.producer_id, header.producer_epoch)
            context.services.unknown_producers.comes_again(who, header.base_sequence)
    return refusal(row.index, error, reason, blamed)


def _word_of(topic: Topic, context: Context) -> str:
    """What the request calls the topic."""
    return topic.id if context.version >= BY_ID else topic.name


def refusal(
    index: int,
    error: ErrorCode,
    reason: str | None = None,
    blamed: Sequence[tuple[int, str]] = (),
) -> PartitionProduceResponse:
    """What is said of a partition whose batch was not taken."""
    return PartitionProduceResponse(
        index=index,
        error_code=error,
        base_offset=-1,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=place, batch_index_error_message=why)
            for place, why in blamed
        ],
        error_message=reason or error.message,
    )
