"""Check that the Produce fast path responds with the bytes of the decoding path."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import msgspec
import pytest

from korvet.base.deferred import Deferred
from korvet.base.errors import ErrorCode
from korvet.base.metrics import Metrics
from korvet.broker.dispatch import Request, finish
from korvet.broker.network.request_decoder import PRODUCE
from korvet.broker.produce_fast_path import ProduceTemplates
from korvet.broker.repeated_request import MAX_TEMPLATES
from korvet.config.topic_policy import TopicConfigs
from korvet.config.values import Settings
from korvet.context import Context, Services
from korvet.handlers.produce import produce
from korvet.log.validator import prepare_append
from korvet.produce.append import PartitionAppender
from korvet.produce.service import ProduceService
from korvet.produce.unknown_producers import UnknownProducers
from korvet.scripts.call import Call
from korvet.scripts.calls.partition import AppendReply
from korvet.scripts.keys import Keys
from korvet.security.audit import Audit
from korvet.security.authorizer import Authorizer
from korvet.security.session import Session
from korvet.store.calls import ReplyWaiter
from korvet.store.errors import StoreUnavailable
from korvet.topics.node import Node
from korvet.topics.table import Topic
from korvet.transactions.add_partitions import EnlistedPartitions
from korvet.wire.headers import decode_request_header
from korvet.wire.messages.delete_topics import DeleteTopicsRequest
from korvet.wire.messages.produce import ProduceRequest
from korvet.wire.schema import decode
from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic, topic_name
from tests.support.raw_client import ROWS, Peer, batch, request, to_fetch, to_produce

VERSIONS = range(3, 14)
SETTINGS = Settings()
STORED = AppendReply(0, 2**40, 2**40 - 1, 17, -1, 1)


def a_topic(name: str = "orders", **configs: str) -> Topic:
    configs = {"storage.format": "batch", **configs}
    policy = TopicConfigs(SETTINGS).policy(name, configs)
    number = "0123456789abcdef" * 2
    return Topic(name, number, UUID(number), 3, configs, policy, b"", Keys())


class Table:
    """A topic table with one topic."""

    def __init__(self, topic: Topic) -> None:
        self.topic: Topic | None = topic

    def peek(self, name: str) -> Topic | None:
        return self.topic if self.topic and name == self.topic.name else None

    def peek_id(self, number: object) -> Topic | None:
        return self.topic if self.topic and number == self.topic.uuid else None

    def is_current(self, topic: Topic) -> bool:
        return topic is self.topic

    def drop(self) -> None:
        self.topic = None


@dataclass
class Bench:
    """The parts of a broker that Produce uses, with its calls and responses."""

    topic: Topic = field(default_factory=a_topic)
    submitted: list[tuple[Any, Call[AppendReply], int, ReplyWaiter[AppendReply]]] = field(
        default_factory=list
    )
    settled: dict[int, Any] = field(default_factory=dict)
    spawned: dict[int, Request] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.services = cast(
            Any, SimpleNamespace(settings=SETTINGS, topics=Table(self.topic), interceptor=None)
        )
        self.services.quotas = cast(Any, SimpleNamespace(version=0))
        self.services.memory = cast(Any, SimpleNamespace(slows=False, is_full=False))
        self.services.metrics = metrics = Metrics()
        self.services.authorizer = Authorizer(
            cast(Any, None), Keys(), SETTINGS, Audit(SETTINGS, {})
        )
        nothing: Any = None
        unknown_producers = UnknownProducers()
        node = Node(
            nothing,
            nothing,
            self.services.topics,
            lambda: cast(Settings, self.services.settings),
            metrics,
        )
        appender = PartitionAppender(
            node,
            cast(Any, SimpleNamespace(submit=lambda *sent: self.submitted.append(sent))),
            unknown_producers,
            cast(Any, SimpleNamespace(add_append=lambda *_, **__: None, connection_epoch=int)),
            self.services.memory,
            cast(Any, SimpleNamespace(appended=lambda *_: False)),
            cast(Any, SimpleNamespace(saw=lambda *_: None)),
        )
        self.services.produce = ProduceService(
            node,
            nothing,
            EnlistedPartitions(nothing, lambda: 0),
            appender,
            unknown_producers,
            nothing,
        )
        self.templates = ProduceTemplates(self.services, Session("127.0.0.1"))

    def context(self, version: int) -> Context:
        return Context(self.services, PRODUCE, version, "peer", Session("127.0.0.1"))

    def respond(self, number: int, answer: Any) -> None:
        self.settled[number] = answer

    def spawn(self, request: Request, number: int) -> None:
        self.spawned[number] = request

    def learn(self, frame: bytes) -> None:
        """Learn from a frame as if it had been decoded."""
        taken = decoded(frame, Deferred(cast(Any, None), cast(Any, None), cast(Any, None)))
        self.templates.learn(frame, taken)

    def learnt(self, frame: bytes) -> bool:
        """Return whether frames like this one match a template afterwards."""
        self.learn(frame)
        begun = self.begin(frame)
        self.submitted.clear()
        return begun

    def begin(self, frame: bytes, number: int = 0) -> bool:
        return self.templates.begin(frame, self, number)


def decoded(frame: bytes, answer: Any) -> Request:
    header, at = decode_request_header(frame)
    body = decode(ProduceRequest, frame, header.api_version, at, exact=False)
    row = ROWS["Produce"]
    return Request(
        row, header.api_version, header.correlation_id, header.client_id, answer, body, 0.0
    )


def produce_frame(
    version: int,
    value: bytes = b"v",
    *,
    topic: Topic | None = None,
    number: int = 1,
    partition: int = 0,
    acks: int = -1,
    client_id: str = "peer",
    change: Callable[[ProduceRequest], object] | None = None,
) -> bytes:
    """Return a request with one small batch for one partition."""
    topic = topic or a_topic()
    body = to_produce(topic.name, batch([value]), acks=acks, partition=partition)
    if version >= 13:
        body.topic_data[0] = msgspec.structs.replace(
            body.topic_data[0], name="", topic_id=topic.uuid
        )
    if change:
        body = cast(ProduceRequest, change(body) or body)
    return request("Produce", version, body, number, client_id)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [1, 40, 90, 20_000])
def test_a_matching_frame_is_sent_and_answered_as_if_decoded(version: int, size: int) -> None:
    bench = Bench()
    assert bench.learnt(produce_frame(version, b"first"))
    frame = produce_frame(version, b"x" * size, number=77, partition=2)
    assert bench.begin(frame, 5)
    ((place, call, weight, waiter),) = bench.submitted

    whole = decoded(frame, None)
    assert isinstance(whole.body, ProduceRequest)
    data = whole.body.topic_data[0].partition_data[0].records or b""
    wanted = prepare_append(
        bench.topic, 2, data, version=version, now_ms=1_700_000_000_000, settings=SETTINGS
    )
    assert [bytes(x) if isinstance(x, memoryview) else x for x in call.args] == [
        bytes(x) if isinstance(x, memoryview) else x for x in wanted.args
    ]
    assert call.keys == wanted.keys
    assert place == ("orders", 2, bench.topic.id, 0)
    assert weight == len(data)

    async def answered() -> Any:
        whole.answer = produce(cast(ProduceRequest, whole.body), bench.context(version))
        bench.submitted[1][3].set_result(STORED)
        return await finish(whole, cast(Services, bench.services))

    waiter.set_result(STORED)
    assert b"".join(bench.settled[5]) == b"".join(asyncio.run(answered()) or [])
    (counted,) = bench.services.metrics.topic_records_in.family().samples
    assert (counted.labels, counted.value) == (("orders",), 2)


@pytest.mark.parametrize("version", [3, 8, 9, 12, 13])
@pytest.mark.parametrize("outcome", [AppendReply(45, -1, -1, 3, -1, 0), StoreUnavailable("gone")])
def test_a_batch_that_is_not_stored_is_answered_as_if_decoded(
    version: int, outcome: AppendReply | StoreUnavailable
) -> None:
    bench = Bench()
    assert bench.learnt(produce_frame(version))
    assert bench.begin(produce_frame(version, number=9))

    async def answered() -> Any:
        waiter = bench.submitted[0][3]
        if isinstance(outcome, AppendReply):
            waiter.set_result(outcome)
        else:
            waiter.set_exception(outcome)
        return await bench.spawned[0].answer

    row = asyncio.run(answered()).responses[0].partition_responses[0]
    expected = 45 if isinstance(outcome, AppendReply) else ErrorCode.KAFKA_STORAGE_ERROR
    assert (row.index, row.error_code, row.base_offset) == (0, expected, -1)
    assert bench.spawned[0].correlation_id == 9
    assert not bench.settled


def two_partitions(body: ProduceRequest) -> None:
    body.topic_data[0].partition_data.append(body.topic_data[0].partition_data[0])


def two_topics(body: ProduceRequest) -> None:
    body.topic_data.append(body.topic_data[0])


def no_records(body: ProduceRequest) -> None:
    rows = body.topic_data[0].partition_data
    rows[0] = msgspec.structs.replace(rows[0], records=None)


def broken(body: ProduceRequest) -> None:
    rows = body.topic_data[0].partition_data
    data = bytearray(rows[0].records or b"")
    data[-1] ^= 1
    rows[0] = msgspec.structs.replace(rows[0], records=bytes(data))


def two_batches(body: ProduceRequest) -> None:
    rows = body.topic_data[0].partition_data
    rows[0] = msgspec.structs.replace(rows[0], records=bytes(rows[0].records or b"") * 2)


def in_a_transaction(body: ProduceRequest) -> ProduceRequest:
    return msgspec.structs.replace(body, transactional_id="t")


def longer_timeout(body: ProduceRequest) -> ProduceRequest:
    return msgspec.structs.replace(body, timeout_ms=10_001)


OTHER_VERSION = {3: 4, 8: 7, 9: 10, 12: 11, 13: 12}
DIFFERENT: dict[str, Callable[[int], bytes]] = {
    "client": lambda v: produce_frame(v, client_id="reep"),
    "topic": lambda v: produce_frame(v, topic=a_topic("sredro")) if v < 13 else b"",
    "acks": lambda v: produce_frame(v, acks=1),
    "timeout": lambda v: produce_frame(v, change=longer_timeout),
    "transaction": lambda v: produce_frame(v, change=in_a_transaction),
    "version": lambda v: produce_frame(OTHER_VERSION[v]),
    "partition": lambda v: produce_frame(v, partition=3),
    "negative partition": lambda v: produce_frame(v, partition=-1),
    "two partitions": lambda v: produce_frame(v, change=two_partitions),
    "two topics": lambda v: produce_frame(v, change=two_topics),
    "no records": lambda v: produce_frame(v, change=no_records),
    "broken": lambda v: produce_frame(v, change=broken),
    "two batches": lambda v: produce_frame(v, change=two_batches),
    "more": lambda v: produce_frame(v) + b"\0",
    "less": lambda v: produce_frame(v)[:-1],
    "tags": lambda v: produce_frame(v)[:-1] + b"\1\7\1x" if v >= 9 else b"",
}


@pytest.mark.parametrize("what", DIFFERENT)
@pytest.mark.parametrize("version", [3, 8, 9, 12, 13])
def test_a_frame_that_differs_is_not_matched(version: int, what: str) -> None:
    bench = Bench()
    assert bench.learnt(produce_frame(version))
    assert not bench.begin(DIFFERENT[what](version))
    assert not bench.submitted


@pytest.mark.parametrize("version", [8, 12])
def test_a_truncated_frame_is_not_matched(version: int) -> None:
    bench = Bench()
    whole = produce_frame(version, b"a value " * 30)
    assert bench.learnt(whole)
    for end in range(len(whole)):
        assert not bench.begin(whole[:end])
    assert bench.begin(whole)


def test_a_frame_is_not_matched_after_topic_or_settings_change() -> None:
    bench = Bench()
    frame = produce_frame(9)
    assert bench.learnt(frame)
    bench.services.topics.topic = a_topic(retention_ms="1")
    assert not bench.begin(frame)
    bench.services.topics.topic = bench.topic
    bench.services.settings = Settings()
    assert not bench.begin(frame)
    bench.services.settings = SETTINGS
    assert bench.begin(frame)


@pytest.mark.parametrize(
    "frame",
    [
        produce_frame(9, acks=0),
        produce_frame(9, change=in_a_transaction),
        produce_frame(9, topic=a_topic("unknown")),
        produce_frame(9) + b"\0",
        produce_frame(8) + b"\0",
        produce_frame(9)[:-1] + b"\1\7\1x",
        request("Produce", 2, to_produce("orders", batch([b"v"]))),
    ],
)
def test_some_requests_make_no_template(frame: bytes) -> None:
    assert not Bench().learnt(frame)


def test_a_connection_has_several_templates() -> None:
    bench = Bench()
    known = [produce_frame(9, client_id=f"peer-{n}") for n in range(MAX_TEMPLATES)]
    assert all(map(bench.learnt, known))
    assert all(map(bench.begin, known))
    assert len(bench.submitted) == MAX_TEMPLATES


def test_few_of_many_different_requests_are_examined() -> None:
    bench = Bench()
    tried = [n for n in range(1, 300) if bench.learnt(produce_frame(9, client_id=f"peer-{n}"))]
    assert tried == [
        *range(1, MAX_TEMPLATES + 1),
        2 * MAX_TEMPLATES,
        4 * MAX_TEMPLATES,
        8 * MAX_TEMPLATES,
        16 * MAX_TEMPLATES,
    ]
    assert bench.begin(produce_frame(9, client_id=f"peer-{16 * MAX_TEMPLATES}"))
    assert not bench.begin(produce_frame(9, client_id="peer-1"))


def test_a_topic_with_log_append_time_answers_append_times(broker: Broker) -> None:
    topic = create_topic(broker.address, message_timestamp_type="LogAppendTime")
    with Peer(broker.address) as peer:
        rows = [
            peer.ask("Produce", 9, to_produce(topic, batch([b"v"])))
            .responses[0]
            .partition_responses[0]
            for _ in range(3)
        ]
    times = [row.log_append_time_ms for row in rows]
    assert times[0] > 1_700_000_000_000
    assert times == sorted(times)


def test_a_rejection_among_matching_frames_is_answered_in_order(broker: Broker) -> None:
    topic = create_topic(broker.address, offset_mode="dense", storage_format="batch")
    sequences = [0, 1, 2, 7, 3, 3, 4]
    with Peer(broker.address) as peer:
        producer = 2**40 + 1
        for number, sequence in enumerate(sequences):
            data = batch([b"v"], producer=(producer, 0, sequence))
            peer.send(request("Produce", 9, to_produce(topic, data), number))
        found = [peer.response(ROWS["Produce"], 9) for _ in sequences]
    assert [number for number, _ in found] == list(range(len(sequences)))
    rows = [body.responses[0].partition_responses[0] for _, body in found]
    assert [(row.error_code, row.base_offset) for row in rows] == [
        (0, 0),
        (0, 1),
        (0, 2),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1),
        (0, 3),
        (0, 3),
        (0, 4),
    ]


@pytest.mark.parametrize("size", [10, 500, 1900, 2100, 9_000, 40_000])
def test_a_cached_batch_is_the_batch_that_was_sent(broker: Broker, size: int) -> None:
    topic = create_topic(broker.address, offset_mode="dense", storage_format="batch")
    with Peer(broker.address) as peer:

        def fetched(offset: int) -> bytes:
            body = peer.ask("Fetch", 11, to_fetch(topic, offset))
            row = body.responses[0].partitions[0]
            assert row.error_code == 0
            return bytes(row.records or b"")

        assert fetched(0) == b""  # the batch cache keeps appends of partitions that were read
        sent = [batch([b"%d" % n * size]) for n in range(4)]
        for data in sent:
            answer = peer.ask("Produce", 9, to_produce(topic, data))
            assert answer.responses[0].partition_responses[0].error_code == 0
        for offset, data in enumerate(sent):
            found = fetched(offset)
            assert found[:8] == offset.to_bytes(8, "big")
            assert found[16 : len(data)] == data[16:]
            assert len(found) == sum(map(len, sent[offset:]))


def test_a_recreated_topic_takes_later_batches(broker: Broker) -> None:
    name = topic_name()
    with Peer(broker.address) as peer:
        for _ in range(2):
            rows = [
                peer.ask("Produce", 9, to_produce(name, batch([b"v"])))
                .responses[0]
                .partition_responses[0]
                for _ in range(3)
            ]
            assert [row.error_code for row in rows] == [0, 0, 0]
            gone = DeleteTopicsRequest(topic_names=[name], timeout_ms=5000)
            assert peer.ask("DeleteTopics", 1, gone).responses[0].error_code == 0
