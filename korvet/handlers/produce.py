"""Produce (key 0), versions 0-13. Records go into partitions, each partition's all or none.

Behaviour
- each partition is one call of log.append, or shares one of log.append_many with what other
  requests   bring for it; a request's calls leave in one burst
- per partition: UNKNOWN_TOPIC_OR_PARTITION (UNKNOWN_TOPIC_ID by id), CORRUPT_MESSAGE,
  INVALID_RECORD (not exactly one batch, control batch, wrong magic), MESSAGE_TOO_LARGE
  (max.message.bytes), INVALID_TIMESTAMP, UNSUPPORTED_COMPRESSION_TYPE,
  OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH; a repeated batch answers its first offset
- an unknown producer begins at any sequence, as the partition may have forgotten it; but where a
  batch of it was refused and will be sent again, what is behind it is OUT_OF_ORDER_SEQUENCE_NUMBER
  until it has come
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
- acks=0 answers nothing and still writes; where it cannot, the connection ends, as Kafka ends it
- Redis failing answers KAFKA_STORAGE_ERROR (clients try again)
- a missing topic is created when the broker allows it
Versions
- 0-2 message sets, v3 record batches, v7 zstd, v8 error messages, v12 partitions join their
  transaction by being produced to (KIP-890), v13 topic ids
"""

import asyncio
from collections.abc import Awaitable, Iterator, Mapping
from time import time

import msgspec

from korvet.admin.auto_create import auto_create
from korvet.context import Context
from korvet.deferred import CloseWithoutResponse
from korvet.errors import ErrorCode
from korvet.log.validator import prepare_append
from korvet.produce.acks import (
    DurabilityRequirement,
    durability_required,
    enough_replicas,
    runs_of,
    wait_until_durable,
)
from korvet.produce.in_flight import BY_ID, ProduceInFlight, Row, refuse
from korvet.store.errors import StoreUnavailable
from korvet.topics.table import Topic
from korvet.transactions.add_partitions import Producer, join, producer_of, transaction_of, unjoined
from korvet.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from korvet.wire.records import BadBatch

MANY_BATCHES = 200
"""So many batches of a request are on their way before others are served."""

Refused = Mapping[Producer, ErrorCode]
NOBODY: Refused = {}


def produce(request: ProduceRequest, context: Context) -> Awaitable[ProduceResponse | None]:
    """The records are on their way to Redis when this returns, unless a topic must be looked up."""
    wrong = _refuse_acks(request.acks, context)
    if wrong:
        return _refuse_all(request, wrong, context)
    copies = durability_required(request.acks, context)
    if copies is not None:
        return _with_copies(request, copies, context)
    topics: list[Topic | None] = []
    for data in request.topic_data:
        topic = _peek(data, context)
        if topic is None:
            return _look_up_first(request, context)
        topics.append(topic)
    joins = request.transactional_id is not None and unjoined(request, topics, context)
    if joins or _is_much(request):
        return _join_first(request, topics, context)
    answer = _send(request, topics, context)
    context.release()
    return answer


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
        return await _refuse_all(request, ErrorCode.KAFKA_STORAGE_ERROR, context)
    return await _join_first(request, topics, context)


async def _join_first(
    request: ProduceRequest, topics: list[Topic | None], context: Context
) -> ProduceResponse | None:
    """Partitions new to their transaction join it; very many batches are sent some at a time. The
    connection's next request waits."""
    refused = await join(unjoined(request, topics, context), context)
    sent = await _send_in_turns(request, topics, context, refused)
    context.release()
    return await sent


async def _with_copies(
    request: ProduceRequest, copies: DurabilityRequirement, context: Context
) -> ProduceResponse | None:
    """The answer waits for copies of what was written; nothing is, where there cannot be enough."""
    topics: list[Topic | None] = []
    try:
        for data in request.topic_data:
            topics.append(await _look_up(data, context))
    except StoreUnavailable:
        return await _refuse_all(request, ErrorCode.KAFKA_STORAGE_ERROR, context)
    streams = [
        context.keys.partition(topic.name, row.index).stream
        for data, topic in zip(request.topic_data, topics, strict=True)
        for row in data.partition_data
        if topic is not None
    ]
    if not await enough_replicas(copies, streams, context):
        return await _refuse_all(request, ErrorCode.NOT_ENOUGH_REPLICAS, context)
    refused = await join(unjoined(request, topics, context), context)
    runs = runs_of(streams, context)
    sent = await _send_in_turns(request, topics, context, refused)
    context.release()
    answer = await sent
    if answer is None or await wait_until_durable(copies, runs, request.timeout_ms, context):
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
    refused: Refused = NOBODY,
) -> Awaitable[ProduceResponse | None]:
    """Everything is on its way to Redis, but for what is refused; the answer to it."""
    appends = ProduceInFlight(request, context)
    for _ in _sending(appends, request, topics, context, refused):
        pass
    return appends.answer()


async def _send_in_turns(
    request: ProduceRequest, topics: list[Topic | None], context: Context, refused: Refused
) -> Awaitable[ProduceResponse | None]:
    """The same; where it is much, others are served in between. All of it goes, as in Kafka, also
    when the client is gone meanwhile: with acks=0 nobody would send the rest again."""
    if not _is_much(request):
        return _send(request, topics, context, refused)
    appends = ProduceInFlight(request, context)
    sending = _sending(appends, request, topics, context, refused)
    await asyncio.shield(asyncio.create_task(_in_turns(sending)))
    return appends.answer()


def _is_much(request: ProduceRequest) -> bool:
    return sum(len(data.partition_data) for data in request.topic_data) > MANY_BATCHES


async def _in_turns(sending: Iterator[None]) -> None:
    for count, _ in enumerate(sending, 1):
        if count % MANY_BATCHES == 0:
            await asyncio.sleep(0)


def _sending(
    appends: ProduceInFlight,
    request: ProduceRequest,
    topics: list[Topic | None],
    context: Context,
    refused: Refused,
) -> Iterator[None]:
    """Each step sends one batch, or refuses it."""
    for data, topic in zip(request.topic_data, topics, strict=True):
        rows = appends.of_topic(data)
        for partition in data.partition_data:
            sent = _row(topic, data, partition, request.transactional_id, appends, context, refused)
            rows.append(sent)
            yield


def _row(
    topic: Topic | None,
    of: TopicProduceData,
    wanted: PartitionProduceData,
    transactional_id: str | None,
    appends: ProduceInFlight,
    context: Context,
    refused: Refused,
) -> Row:
    index, data = wanted.index, b"" if wanted.records is None else wanted.records
    if topic is None:
        by_id = context.version >= BY_ID
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return refuse(of, wanted, unknown, context)
    if not 0 <= index < topic.partitions:
        return refuse(of, wanted, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, context)
    transaction = None
    if transactional_id is not None:
        producer = producer_of(transactional_id, data)
        error = refused.get(producer) if producer else None
        if error:
            return refuse(of, wanted, error, context)
        transaction = transaction_of(transactional_id, data, context)
    try:
        call = prepare_append(
            context.keys,
            topic,
            index,
            data,
            version=context.version,
            now_ms=int(time() * 1000),
            settings=context.settings,
            transaction=transaction,
        )
    except BadBatch as bad:
        return refuse(of, wanted, bad.error, context, str(bad), bad.blamed)
    append = appends.expect(topic, index, data, call)
    place = (topic.name, index, topic.id, int(topic.policy.log_append_time))
    context.services.append_batcher.submit(place, call, len(data), append)
    return append


async def _refuse_all(
    request: ProduceRequest, error: ErrorCode, context: Context
) -> ProduceResponse | None:
    if not request.acks:
        raise CloseWithoutResponse(f"batches sent with acks=0 are not stored: {error.name}")
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=data.name,
                topic_id=data.topic_id,
                partition_responses=[
                    refuse(data, row, error, context) for row in data.partition_data
                ],
            )
            for data in request.topic_data
        ]
    )
