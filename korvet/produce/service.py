"""Handle a Produce request: resolve, enlist, send, wait for replicas, respond.

    resolve   the topics of the request; a missing one is created where the broker allows it
    enlist    partitions that are new to the request's transaction (KIP-890)
    send      one append for each partition
    wait      for replicas and fsync, if acks asks for them
    respond   once every append has its reply

Rules
- The usual request has cached topics, few batches, and nothing to enlist or to wait for. It is sent
  before `produce` returns, and without a task.
- Any other runs the same steps in a coroutine. The connection's next request waits until the
  batches are sent: `release`.
- A request with many batches yields to the event loop between them. One with batches that open
  much waits for the thread that opens them. Both are sent to the end even if the client
  disconnects: with acks=0 no client would send the rest again.
- Of a partition named twice, the last batch counts, and the response has one row, as in Kafka.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from msgspec.structs import replace

from korvet.admin.auto_create import TopicAutoCreator
from korvet.base.bounded import without_repeats
from korvet.base.deferred import CloseWithoutResponse
from korvet.base.errors import ErrorCode
from korvet.config.durability import Durability
from korvet.log.opening import OpensMuch
from korvet.produce.acks import durability_required, enough_replicas, find_late
from korvet.produce.append import TOPIC_IDS_SINCE, PartitionAppender
from korvet.produce.in_flight import ProduceInFlight, RequestAppend, Row, rejection
from korvet.produce.unknown_producers import UnknownProducers
from korvet.store.errors import StoreUnavailable
from korvet.store.replica_wait import ReplicaWait
from korvet.topics.node import Node
from korvet.topics.table import Topic
from korvet.transactions.add_partitions import EnlistedPartitions, Producer, producer_of
from korvet.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from korvet.wire.records import HEADER_SIZE, MAGIC, MAGIC_AT, BadBatch, read_header

BATCHES_PER_ITERATION = 200
"""Batches to send before yielding to the event loop."""
RETRIED = frozenset(
    {error for error in ErrorCode if error.retriable} | {ErrorCode.MESSAGE_TOO_LARGE}
)
"""Errors after which a producer sends the batch again, whole or split."""

MayCreate = Callable[[str], bool]
Charge = Callable[[int], Awaitable[None]]
Opening: TypeAlias = asyncio.Future[None]
"""A batch that is opened in the thread."""
Sending: TypeAlias = Generator[Opening | None, None, None]
Rejected = Mapping[Producer, ErrorCode]
NONE_REJECTED: Rejected = {}
Numbers = Collection[int]
"""Topics of a request, by their numbers in it."""
NO_NUMBERS: Numbers = ()


@dataclass(eq=False, repr=False)
class ProduceService:
    """Handles the Produce requests of one broker."""

    node: Node
    auto_creator: TopicAutoCreator
    enlisted: EnlistedPartitions
    appender: PartitionAppender
    unknown_producers: UnknownProducers
    replica_wait: ReplicaWait

    def produce(
        self,
        request: ProduceRequest,
        version: int,
        release: Callable[[], None],
        may_create: MayCreate,
        charge: Charge | None = None,
        opened: Callable[[int], None] | None = None,
    ) -> Awaitable[ProduceResponse | None]:
        """Send the request's batches; return the response to await.

        `may_create` returns whether the client may create a topic of that name. `charge` counts
        created partitions and may raise Refused, `opened` counts decompressed bytes.
        """
        if request.acks not in (0, 1, -1) and not (request.acks > 1 and version <= 2):
            return self._reject_all(request, ErrorCode.INVALID_REQUIRED_ACKS, version)
        request = _without_repeats(request, version)
        topics = self._cached_topics(request, version)
        if topics is None or _has_many(request) or self.enlisted.missing(request, topics, version):
            in_flight = self.in_flight(request, version, opened)
            return self._produce_in_steps(in_flight, release, may_create, charge)
        in_flight = self.in_flight(request, version, opened)
        sending = self._send(in_flight, topics, NONE_REJECTED)
        for opening in sending:
            if opening is not None:
                return self._continue(in_flight, sending, opening, release)
        response = in_flight.response()
        release()
        return response

    async def append(self, topic: Topic, partition: int, batch: bytes) -> ErrorCode:
        """Append a batch of this broker, as acks=-1 asks for; return the error."""
        row = PartitionProduceData(index=partition, records=batch)
        data = TopicProduceData(name=topic.name, partition_data=[row])
        request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data])
        by_name = TOPIC_IDS_SINCE - 1
        response = await self.produce(request, by_name, lambda: None, lambda name: False)
        assert response is not None
        return ErrorCode(response.responses[0].partition_responses[0].error_code)

    async def _continue(
        self,
        in_flight: ProduceInFlight,
        sending: Sending,
        opening: Opening,
        release: Callable[[], None],
    ) -> ProduceResponse | None:
        """Send the rest of a request, after a batch that is opened in the thread."""
        await asyncio.shield(asyncio.create_task(_yielding(sending, opening)))
        response = in_flight.response()
        release()
        return await response

    def in_flight(
        self, request: ProduceRequest, version: int, opened: Callable[[int], None] | None = None
    ) -> ProduceInFlight:
        """Return the request with no append sent yet."""
        services = self.appender, self.node.topics, self.enlisted
        return ProduceInFlight(request, version, *services, opened)

    async def _produce_in_steps(
        self,
        in_flight: ProduceInFlight,
        release: Callable[[], None],
        may_create: MayCreate,
        charge: Charge | None,
    ) -> ProduceResponse | None:
        request, version = in_flight.request, in_flight.version
        try:
            topics = [
                await self._resolve(data, version, may_create, charge)
                for data in request.topic_data
            ]
        except StoreUnavailable:
            return await self._reject_all(request, ErrorCode.KAFKA_STORAGE_ERROR, version)
        waits: dict[int, tuple[Durability, list[str]]] = {}
        for nth, (data, topic) in enumerate(zip(request.topic_data, topics, strict=True)):
            durability = durability_required(request.acks, topic)
            if topic is not None and durability is not None:
                streams = [topic.partition(row.index).stream for row in data.partition_data]
                waits[nth] = durability, streams
        too_few = {
            nth
            for nth, wanted in waits.items()
            if not await enough_replicas(*wanted, self.replica_wait)
        }
        rejected = await self.enlisted.enlist(self.enlisted.missing(request, topics, version))
        run_of = self.node.store.run_of
        servers = {
            nth: {(durability, run_of(stream)): stream for stream in streams}
            for nth, (durability, streams) in waits.items()
            if nth not in too_few
        }
        sending = _yielding(self._send(in_flight, topics, rejected, too_few))
        await asyncio.shield(asyncio.create_task(sending))
        waiting = in_flight.response()
        release()
        response = await waiting
        if response is None or not servers:
            return response
        each = {at: stream for found in servers.values() for at, stream in found.items()}
        late = await find_late(each, request.timeout_ms, self.replica_wait)
        for nth, found in servers.items():
            if not late.isdisjoint(found):
                _note_not_durable(response.responses[nth])
        return response

    def _cached_topics(self, request: ProduceRequest, version: int) -> list[Topic] | None:
        """Return the request's topics; None if one must be read, or acks waits for more."""
        by_id, table = version >= TOPIC_IDS_SINCE, self.node.topics
        waits_for_all = request.acks < 0
        if request.acks > 1:
            return None
        topics: list[Topic] = []
        for data in request.topic_data:
            topic = table.peek_id(data.topic_id) if by_id else table.peek(data.name)
            if topic is None or (waits_for_all and topic.policy.acks_all is not None):
                return None
            topics.append(topic)
        return topics

    async def _resolve(
        self, data: TopicProduceData, version: int, may_create: MayCreate, charge: Charge | None
    ) -> Topic | None:
        """Return the topic, created if missing and auto.create.topics.enable is set."""
        if version >= TOPIC_IDS_SINCE:
            return await self.node.topics.get_id(data.topic_id)
        topic = await self.node.topics.get(data.name)
        if (
            topic is None
            and self.node.settings().flag("auto.create.topics.enable")
            and may_create(data.name)
        ):
            topic = await self.auto_creator.create(data.name, charge=charge)
        return topic

    def _send(
        self,
        in_flight: ProduceInFlight,
        topics: Sequence[Topic | None],
        rejected: Rejected,
        too_few: Numbers = NO_NUMBERS,
    ) -> Sending:
        """Send, or reject, one batch at each step; a yielded awaitable is to be awaited first.

        `too_few`: the topics that have not enough replicas.
        """
        for nth, (data, topic) in enumerate(zip(in_flight.request.topic_data, topics, strict=True)):
            rows = in_flight.rows_for(data)
            if nth in too_few:
                few, version = ErrorCode.NOT_ENOUGH_REPLICAS, in_flight.version
                rows += [self._reject(data, each, few, version) for each in data.partition_data]
                continue
            for partition in data.partition_data:
                rows.append((yield from self._append(in_flight, data, topic, partition, rejected)))
                yield None

    def _append(
        self,
        in_flight: ProduceInFlight,
        data: TopicProduceData,
        topic: Topic | None,
        partition: PartitionProduceData,
        rejected: Rejected,
    ) -> Generator[Opening, None, Row]:
        """Send one partition's batch; return its append, or its response if it is rejected."""
        version, transactional_id = in_flight.version, in_flight.request.transactional_id
        if topic is None or not 0 <= partition.index < topic.partitions:
            no_id = topic is None and version >= TOPIC_IDS_SINCE
            unknown = ErrorCode.UNKNOWN_TOPIC_ID if no_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return self._reject(data, partition, unknown, version)
        batch = partition.records or b""
        transaction = None
        if transactional_id is not None:
            producer = producer_of(transactional_id, batch)
            fenced = rejected.get(producer) if producer else None
            if fenced is not None:
                return self._reject(data, partition, fenced, version)
            transaction = self.enlisted.number_for(producer, version)
        append = RequestAppend(in_flight, topic, partition.index, batch)
        try:
            try:
                self.appender.prepare(append, transaction)
            except OpensMuch:
                opening = asyncio.ensure_future(
                    self.appender.prepare_in_thread(append, transaction)
                )
                yield opening
                opening.result()
        except BadBatch as bad:
            return self._reject(data, partition, bad.error, version, str(bad), bad.blamed)
        finally:
            if in_flight.opened is not None and append.opened:
                in_flight.opened(append.opened)
        in_flight.expect_reply()
        self.appender.submit(append)
        return append

    def _reject(
        self,
        data: TopicProduceData,
        partition: PartitionProduceData,
        error: ErrorCode,
        version: int,
        reason: str | None = None,
        record_errors: Sequence[tuple[int, str]] = (),
    ) -> PartitionProduceResponse:
        """Return the response for a batch that is not sent; note whether it will be retried."""
        batch = partition.records or b""
        if error in RETRIED and len(batch) >= HEADER_SIZE and batch[MAGIC_AT] == MAGIC:
            header = read_header(batch)
            if header.producer_id >= 0:
                topic = data.topic_id.hex if version >= TOPIC_IDS_SINCE else data.name
                producer = (topic, partition.index, header.producer_id, header.producer_epoch)
                self.unknown_producers.expect_retry(producer, header.base_sequence)
        return rejection(partition.index, error, reason, record_errors)

    async def _reject_all(
        self, request: ProduceRequest, error: ErrorCode, version: int
    ) -> ProduceResponse:
        """Return the response of a request of which nothing is sent."""
        if not request.acks:
            raise CloseWithoutResponse(f"batches sent with acks=0 are not stored: {error.name}")
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=data.name,
                    topic_id=data.topic_id,
                    partition_responses=[
                        self._reject(data, row, error, version) for row in data.partition_data
                    ],
                )
                for data in request.topic_data
            ]
        )


def _without_repeats(request: ProduceRequest, version: int) -> ProduceRequest:
    """Return the request with the last batch of each partition."""
    if len(request.topic_data) == 1 and len(request.topic_data[0].partition_data) < 2:
        return request
    by_id = version >= TOPIC_IDS_SINCE
    once = without_repeats(
        request.topic_data,
        lambda data: data.topic_id if by_id else data.name,
        lambda data: data.partition_data,
        lambda row: row.index,
    )
    return replace(request, topic_data=[replace(data, partition_data=rows) for data, rows in once])


def _has_many(request: ProduceRequest) -> bool:
    return sum(len(data.partition_data) for data in request.topic_data) > BATCHES_PER_ITERATION


async def _yielding(sending: Sending, opening: Opening | None = None) -> None:
    """Send the batches after `opening`, yielding to the event loop every BATCHES_PER_ITERATION."""
    if opening is not None:
        await asyncio.wait((opening,))
    count = 0
    for opening in sending:
        if opening is not None:
            await asyncio.wait((opening,))
            continue
        count += 1
        if count % BATCHES_PER_ITERATION == 0:
            await asyncio.sleep(0)


def _note_not_durable(topic: TopicProduceResponse) -> None:
    """Change the rows of stored batches that replicas or disk do not have in time."""
    error = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    topic.partition_responses[:] = [
        row if row.error_code else replace(row, error_code=error, error_message=error.message)
        for row in topic.partition_responses
    ]
