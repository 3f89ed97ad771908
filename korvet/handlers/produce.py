"""Produce (key 0), versions 0-13. Records go into partitions, each partition's all or none.

Behaviour
- each partition is one call of log.append, or shares one of log.gather with what other requests
  bring for it; a request's calls leave in one burst
- per partition: UNKNOWN_TOPIC_OR_PARTITION (UNKNOWN_TOPIC_ID by id), CORRUPT_MESSAGE,
  INVALID_RECORD (not exactly one batch, control batch, wrong magic), MESSAGE_TOO_LARGE
  (max.message.bytes), INVALID_TIMESTAMP, UNSUPPORTED_COMPRESSION_TYPE,
  OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH; a repeated batch answers its first offset
- INVALID_RECORD for want of a key and INVALID_TIMESTAMP name the records they are for, and no
  other: whoever sent the others with them learns that those were not to blame
- transactional batches: TRANSACTIONAL_ID_AUTHORIZATION_FAILED without a transactional id,
  INVALID_PRODUCER_ID_MAPPING, INVALID_PRODUCER_EPOCH, and INVALID_TXN_STATE for a partition outside
  the transaction (from 11 on TRANSACTION_ABORTABLE); plain ones of a producer whose transaction is
  open there: INVALID_TXN_STATE
- acks other than 0, 1, -1: INVALID_REQUIRED_ACKS, but for a number of copies N in versions 0-2. For
  that, and for acks=-1 with acks.all.wait.replicas or acks.all.fsync: NOT_ENOUGH_REPLICAS and
  nothing written when Redis has too few replicas, NOT_ENOUGH_REPLICAS_AFTER_APPEND when they, or
  the disk, do not have it within timeout_ms
- acks=0 answers nothing and still writes
- Redis failing answers KAFKA_STORAGE_ERROR (clients try again)
- a missing topic is created when the broker allows it
Versions
- 0-2 message sets, v3 record batches, v7 zstd, v8 error messages, v12 partitions join their
  transaction by being produced to (KIP-890), v13 topic ids
"""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from time import time

import msgspec

from korvet import logs
from korvet.acknowledging import Copies, copies_wanted, made, possible
from korvet.context import LATER, Context, Later, Soon
from korvet.errors import ErrorCode
from korvet.fetching import reader
from korvet.joining import Producer, join, producer_of, transaction_of, unjoined, why_outside
from korvet.producing import prepare
from korvet.scripts.call import Call
from korvet.scripts.log import AppendReply, count_of
from korvet.store.errors import StoreError, StoreUnavailable
from korvet.topic_creation import auto_create
from korvet.topics import Topic
from korvet.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from korvet.wire.records import BadBatch, Buffer

BY_ID = 13
"""The version from which on Produce names topics by their ids."""
STALE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
Refused = Mapping[Producer, ErrorCode]

logger = logs.get("produce")


class Pending(msgspec.Struct, frozen=True):
    """A partition's append under way."""

    index: int
    topic: Topic
    call: Call[AppendReply]
    reply: asyncio.Future[AppendReply]


Row = PartitionProduceResponse | Pending
Sent = tuple[Topic | None, list[Row]]


def produce(request: ProduceRequest, context: Context) -> Awaitable[ProduceResponse | None]:
    """The records are on their way to Redis when this returns, unless a topic must be looked up."""
    refusal = _refuse_acks(request.acks, context)
    if refusal:
        return _refuse_all(request, refusal)
    copies = copies_wanted(request.acks, context)
    if copies is not None:
        return _with_copies(request, copies, context)
    topics: list[Topic | None] = []
    for data in request.topic_data:
        topic = _peek(data, context)
        if topic is None:
            return _look_up_first(request, context)
        topics.append(topic)
    if request.transactional_id is not None and unjoined(request, topics, context):
        return _join_first(request, topics, context)
    sent = _send(request, topics, context)
    context.release()
    if len(sent) == 1 and len(sent[0][1]) == 1:
        row = sent[0][1][0]
        if isinstance(row, Pending):
            return Soon(
                row.reply,
                partial(_answer_at_once, request, row, context),
                partial(_answer, request, sent, context),
            )
    return _answer(request, sent, context)


def _refuse_acks(acks: int, context: Context) -> ErrorCode:
    if acks in (0, 1, -1) or (acks > 1 and context.version <= 2):
        return ErrorCode.NONE
    return ErrorCode.INVALID_REQUIRED_ACKS


def _peek(data: TopicProduceData, context: Context) -> Topic | None:
    if context.version >= BY_ID:
        return context.topics.peek_id(data.topic_id)
    return context.topics.peek(data.name)


async def _look_up_first(request: ProduceRequest, context: Context) -> ProduceResponse | None:
    """The slow way, once a topic is not in the table: the connection's next request waits."""
    topics: list[Topic | None] = []
    try:
        for data in request.topic_data:
            topics.append(await _look_up(data, context))
    except StoreUnavailable:
        return await _refuse_all(request, ErrorCode.KAFKA_STORAGE_ERROR)
    return await _join_first(request, topics, context)


async def _join_first(
    request: ProduceRequest, topics: list[Topic | None], context: Context
) -> ProduceResponse | None:
    """Partitions new to their transaction join it: the connection's next request waits."""
    refused = await join(unjoined(request, topics, context), context)
    sent = _send(request, topics, context, refused)
    context.release()
    return await _answer(request, sent, context)


async def _with_copies(
    request: ProduceRequest, copies: Copies, context: Context
) -> ProduceResponse | None:
    """The answer waits for copies of what was written; nothing is, where there cannot be enough."""
    topics: list[Topic | None] = []
    try:
        for data in request.topic_data:
            topics.append(await _look_up(data, context))
    except StoreUnavailable:
        return await _refuse_all(request, ErrorCode.KAFKA_STORAGE_ERROR)
    streams = [
        context.keys.partition(topic.name, row.index).stream
        for data, topic in zip(request.topic_data, topics, strict=True)
        for row in data.partition_data
        if topic is not None
    ]
    if not await possible(copies, streams, context):
        return await _refuse_all(request, ErrorCode.NOT_ENOUGH_REPLICAS)
    refused = await join(unjoined(request, topics, context), context)
    sent = _send(request, topics, context, refused)
    context.release()
    answer = await _answer(request, sent, context)
    if answer is None or await made(copies, streams, request.timeout_ms, context):
        return answer
    late = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    for response in answer.responses:
        response.partition_responses[:] = [
            row
            if row.error_code
            else msgspec.structs.replace(row, error_code=late, error_message=late.message)
            for row in response.partition_responses
        ]
    return answer


async def _look_up(data: TopicProduceData, context: Context) -> Topic | None:
    if context.version >= BY_ID:
        return await context.topics.get_id(data.topic_id)
    topic = await context.topics.get(data.name)
    if topic is None and context.settings.flag("auto.create.topics.enable"):
        topic = await auto_create(data.name, context)
    return topic


def _send(
    request: ProduceRequest,
    topics: list[Topic | None],
    context: Context,
    refused: Refused | None = None,
) -> list[Sent]:
    transactional_id = request.transactional_id
    return [
        (
            topic,
            [
                _submit(topic, partition, transactional_id, context, refused or {})
                for partition in data.partition_data
            ],
        )
        for data, topic in zip(request.topic_data, topics, strict=True)
    ]


def _submit(
    topic: Topic | None,
    data: PartitionProduceData,
    transactional_id: str | None,
    context: Context,
    refused: Refused,
) -> Row:
    if topic is None:
        by_id = context.version >= BY_ID
        return _refusal(
            data.index,
            ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )
    if not 0 <= data.index < topic.partitions:
        return _refusal(data.index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    transaction = None
    if transactional_id is not None:
        producer = producer_of(transactional_id, data.records)
        error = refused.get(producer) if producer else None
        if error:
            return _refusal(data.index, error)
        transaction = transaction_of(transactional_id, data.records, context)
    try:
        call = prepare(
            context.keys,
            topic,
            data.index,
            b"" if data.records is None else data.records,
            version=context.version,
            now_ms=int(time() * 1000),
            settings=context.settings,
            transaction=transaction,
        )
    except BadBatch as bad:
        return _refusal(data.index, bad.error, str(bad), bad.blamed)
    place = (topic.name, data.index, topic.id, int(topic.policy.log_append_time))
    reply: asyncio.Future[AppendReply] = asyncio.get_running_loop().create_future()
    context.node.gatherer.submit(place, call, len(data.records or b""), reply)
    return Pending(data.index, topic, call, reply)


def _answer_at_once(
    request: ProduceRequest, row: Pending, context: Context
) -> ProduceResponse | Later | None:
    """The answer where one partition was sent one batch, and took it."""
    if row.reply.cancelled() or row.reply.exception() is not None:
        return LATER
    reply = row.reply.result()
    if reply.error:
        return LATER
    data = request.topic_data[0]
    response = _stored(row, reply, data.partition_data[0].records, context)
    if not request.acks:
        return None
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=data.name, topic_id=data.topic_id, partition_responses=[response]
            )
        ]
    )


def answer_to(
    request: ProduceRequest,
    topic: Topic,
    index: int,
    call: Call[AppendReply],
    reply: asyncio.Future[AppendReply],
    context: Context,
) -> Awaitable[ProduceResponse | None]:
    """The answer to a request whose one batch is what the call appends."""
    return _answer(request, [(topic, [Pending(index, topic, call, reply)])], context)


async def _answer(
    request: ProduceRequest, sent: list[Sent], context: Context
) -> ProduceResponse | None:
    responses = []
    for data, (_, partitions) in zip(request.topic_data, sent, strict=True):
        rows = []
        for row, partition in zip(partitions, data.partition_data, strict=True):
            if isinstance(row, Pending):
                rows.append(await _reply(row, partition.records, request, context))
            else:
                rows.append(row)
        responses.append(
            TopicProduceResponse(
                name=data.name,
                topic_id=data.topic_id,
                partition_responses=rows,
            )
        )
    return ProduceResponse(responses=responses) if request.acks else None


async def _reply(
    row: Pending, data: Buffer | None, request: ProduceRequest, context: Context
) -> PartitionProduceResponse:
    index = row.index
    try:
        reply = await row.reply
        if reply.error:
            return _refusal(index, await _reason(row, reply, data, request, context))
    except StoreError as error:
        if not isinstance(error, StoreUnavailable):
            logger.error("an append failed in Redis", topic=row.topic.name, error=error)
        return _refusal(index, ErrorCode.KAFKA_STORAGE_ERROR)
    return _stored(row, reply, data, context)


def noted(
    topic: Topic,
    index: int,
    call: Call[AppendReply],
    reply: AppendReply,
    size: int,
    context: Context,
) -> None:
    """A batch of so many bytes that Redis took is counted, and kept for who reads it next."""
    context.node.metrics.appended(count_of(call) if reply.stored else 0, size)
    if reply.stored and topic.is_batch and reply.append_time < 0:
        reader(context).appended(topic, index, reply.previous, reply.base, call)


def _stored(
    row: Pending, reply: AppendReply, data: Buffer | None, context: Context
) -> PartitionProduceResponse:
    noted(row.topic, row.index, row.call, reply, len(data or b""), context)
    return PartitionProduceResponse(
        index=row.index,
        error_code=0,
        base_offset=reply.base,
        log_append_time_ms=reply.append_time,
        log_start_offset=reply.start,
    )


async def _reason(
    row: Pending, reply: AppendReply, data: Buffer | None, request: ProduceRequest, context: Context
) -> ErrorCode:
    """Why nothing was appended; for a stranger to the transaction, in what it is one."""
    error = ErrorCode(reply.error)
    if error in STALE:
        context.topics.drop()
        # Whoever asks by name does not know that topics have ids.
        return error if context.version >= BY_ID else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if error != ErrorCode.INVALID_TXN_STATE or request.transactional_id is None:
        return error
    producer = producer_of(request.transactional_id, data)
    if producer is None:
        return error
    return await why_outside(producer, row.topic.name, row.index, context)


def _refusal(
    index: int,
    error: ErrorCode,
    reason: str | None = None,
    blamed: Sequence[tuple[int, str]] = (),
) -> PartitionProduceResponse:
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


async def _refuse_all(request: ProduceRequest, error: ErrorCode) -> ProduceResponse | None:
    if not request.acks:
        return None
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=data.name,
                topic_id=data.topic_id,
                partition_responses=[_refusal(row.index, error) for row in data.partition_data],
            )
            for data in request.topic_data
        ]
    )
