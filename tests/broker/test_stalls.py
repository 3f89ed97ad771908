"""Check that a broker which was stopped begins nothing that its clients have given up.

Two brokers on one Redis. One is stopped by SIGSTOP; what its clients had sent is in its sockets
then. They repeat it at the other broker, and continue there.
"""

import os
import signal
import socket
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import psutil
import pytest
from msgspec import structs

from korvet.base.errors import ErrorCode
from korvet.wire import batch_builder
from korvet.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from korvet.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from korvet.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from korvet.wire.messages.delete_topics import DeleteTopicsRequest
from korvet.wire.messages.end_txn import EndTxnRequest
from korvet.wire.messages.init_producer_id import InitProducerIdRequest
from korvet.wire.messages.metadata import MetadataRequest
from korvet.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from korvet.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopics
from korvet.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from korvet.wire.structs import NamedPartitions
from tests.broker import stall_load
from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic
from tests.legacy import wire
from tests.support.ports import free_port
from tests.support.raw_client import Peer, batch, request, to_fetch, to_produce, until
from tests.support.redis_servers import TestServer
from tests.support.running_console import token_in
from tests.support.shared_broker import started

pytestmark = pytest.mark.slow

PAUSE_S = 1.2
NEVER_MS = "600000"


@pytest.fixture
def other(tmp_path: Path, own_server: TestServer) -> Iterator[Broker]:
    """The broker that is not stopped."""
    broker = started(tmp_path / "other", own_server.url)
    yield broker
    broker.close()


@pytest.fixture(params=["1000", NEVER_MS], ids=["noticed", "not noticed"])
def stopped(
    request: pytest.FixtureRequest, tmp_path: Path, own_server: TestServer
) -> Iterator[Broker]:
    """The broker that is stopped; it notices that, or has only the ends of its connections."""
    broker = started(tmp_path / "one", own_server.url, connections_max_stall_ms=request.param)
    yield broker
    broker.close()
    assert "Traceback" not in broker.log


@contextmanager
def paused(pid: int) -> Iterator[None]:
    """Stop the process for PAUSE_S or longer."""
    os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    try:
        yield
        time.sleep(max(0.0, began + PAUSE_S - time.monotonic()))
    finally:
        os.kill(pid, signal.SIGCONT)


def to_create(name: str) -> CreateTopicsRequest:
    topic = CreatableTopic(
        name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    return CreateTopicsRequest(timeout_ms=10_000, topics=[topic])


def to_delete(name: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000)


def to_empty(name: str) -> DeleteRecordsRequest:
    rows = [DeleteRecordsPartition(partition_index=0, offset=-1)]
    topics = [DeleteRecordsTopic(name=name, partitions=rows)]
    return DeleteRecordsRequest(topics=topics, timeout_ms=10_000)


def to_commit(topic: str, offset: int) -> OffsetCommitRequest:
    row = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=""
    )
    return OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[row])],
    )


def committed(peer: Peer, topic: str) -> int:
    topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
    found = peer.ask("OffsetFetch", 5, OffsetFetchRequest(group_id="g", topics=topics))
    offset: int = found.topics[0].partitions[0].committed_offset
    return offset


def produced(peer: Peer, topic: str, *values: bytes) -> int:
    """Produce the values; return the offset of the first."""
    found = peer.ask("Produce", 9, to_produce(topic, batch(values)))
    row = found.responses[0].partition_responses[0]
    assert row.error_code == 0
    offset: int = row.base_offset
    return offset


def test_admin_requests_and_commits_of_before_are_not_processed(
    stopped: Broker, other: Broker
) -> None:
    orders, log = (create_topic(other.address, offset_mode="dense") for _ in range(2))
    with Peer(other.address) as peer:
        for topic in (orders, log):
            produced(peer, topic, b"old")
        late = [
            ("DeleteTopics", 3, to_delete(orders)),
            ("DeleteRecords", 1, to_empty(log)),
            ("OffsetCommit", 7, to_commit(log, 1)),
            ("CreateTopics", 5, to_create("revived")),
            ("Produce", 9, to_produce("created", batch([b"v"]))),
        ]
        clients = [Peer(stopped.address) for _ in late]
        with paused(stopped.pid):
            for client, (name, version, body) in zip(clients, late, strict=True):
                client.send(request(name, version, body))
            with Peer(stopped.address) as never_accepted:
                never_accepted.send(request("OffsetCommit", 7, to_commit(log, 1)))
            for client in clients:
                client.socket.close()
            for name, version, body in late[:-1]:
                peer.ask(name, version, body)
            assert peer.ask("OffsetCommit", 7, to_commit(log, 2)).topics[0].partitions
            peer.ask("DeleteTopics", 3, to_delete("revived"))
            peer.ask("CreateTopics", 5, to_create(orders))
            for topic in (orders, log):
                produced(peer, topic, b"new", b"newer")
        with Peer(stopped.address) as again:
            assert again.ask("OffsetCommit", 7, to_commit(log, 3)).topics[0].partitions
        assert until(lambda: committed(peer, log) == 3, 2)
        for topic in (orders, log):
            found = peer.ask("Fetch", 11, to_fetch(topic, 1 if topic is log else 0))
            assert len(bytes(found.responses[0].partitions[0].records)) > 60, topic
        for name in ("revived", "created"):
            found = peer.ask("DeleteTopics", 3, to_delete(name))
            assert found.responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name


class Producer:
    """A transactional producer with EndTxn below 5: all its transactions have one epoch."""

    def __init__(self, peer: Peer, topic: str) -> None:
        self.topic = topic
        made = peer.ask(
            "InitProducerId",
            4,
            InitProducerIdRequest(
                transactional_id="x",
                transaction_timeout_ms=60_000,
                producer_id=-1,
                producer_epoch=-1,
            ),
        )
        self.id, self.epoch = made.producer_id, made.producer_epoch

    def add(self, peer: Peer) -> None:
        found = peer.ask(
            "AddPartitionsToTxn",
            3,
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="x",
                v3_and_below_producer_id=self.id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[NamedPartitions(name=self.topic, partitions=[0])],
            ),
        )
        (topic,) = found.results_by_topic_v3_and_below
        assert topic.results_by_partition[0].partition_error_code == 0

    def produce(self, peer: Peer, value: bytes, sequence: int) -> None:
        made = batch_builder.build(
            [(0, int(time.time() * 1000), None, value, [])],
            producer=(self.id, self.epoch, sequence),
            transactional=True,
        )
        rows = [PartitionProduceData(index=0, records=bytes(made))]
        asked = ProduceRequest(
            transactional_id="x",
            acks=-1,
            timeout_ms=10_000,
            topic_data=[TopicProduceData(name=self.topic, partition_data=rows)],
        )
        found = peer.ask("Produce", 9, asked)
        assert found.responses[0].partition_responses[0].error_code == 0

    def to_end(self, committed: bool) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id="x",
            producer_id=self.id,
            producer_epoch=self.epoch,
            committed=committed,
        )


@pytest.mark.parametrize("closes", [True, False], ids=["closed", "open"])
def test_the_end_of_a_transaction_does_not_end_the_next_one(
    stopped: Broker, other: Broker, closes: bool
) -> None:
    """An open connection: a proxy holds its end back. Then only the transaction's number helps."""
    topic = create_topic(other.address, offset_mode="dense")
    with Peer(stopped.address) as one, Peer(other.address) as peer:
        producer = Producer(one, topic)
        producer.add(one)
        producer.produce(one, b"first", 0)
        with paused(stopped.pid):
            one.send(request("EndTxn", 3, producer.to_end(True)))
            if closes:
                one.socket.close()
            assert peer.ask("EndTxn", 3, producer.to_end(True)).error_code == 0
            producer.add(peer)
            producer.produce(peer, b"second, part 1", 1)
        with Peer(stopped.address) as again:
            again.ask("Fetch", 11, to_fetch(topic))
        producer.produce(peer, b"second, part 2", 2)
        assert peer.ask("EndTxn", 3, producer.to_end(False)).error_code == 0
        asked = structs.replace(to_fetch(topic), isolation_level=1)
        found = peer.ask("Fetch", 11, asked).responses[0].partitions[0]
        assert [row.first_offset for row in found.aborted_transactions] == [2]


def test_records_without_acknowledgement_are_stored_although_the_client_has_closed(
    stopped: Broker, other: Broker
) -> None:
    """As in Kafka; the client never sends them again."""
    topic = create_topic(other.address, offset_mode="dense")
    with Peer(stopped.address) as one:
        produced(one, topic, b"v")
        one.send(*[request("Produce", 9, to_produce(topic, batch([b"v"]), acks=0))] * 20)
    with Peer(other.address) as peer:
        assert until(lambda: produced(peer, topic, b"w") > 20, 10)


def brokers_of(peer: Peer) -> list[int]:
    return sorted(
        row.node_id for row in peer.ask("Metadata", 12, MetadataRequest(topics=[])).brokers
    )


def test_clients_are_not_sent_to_a_broker_that_is_stopped_or_dead(
    tmp_path: Path, own_server: TestServer
) -> None:
    one, other = (started(tmp_path / name, own_server.url) for name in ("one", "other"))
    with Peer(one.address) as peer, own_server.client() as redis:
        assert until(lambda: brokers_of(peer) == [0, 1])
        with paused(other.pid):
            assert until(lambda: brokers_of(peer) == [0])
            assert redis.hexists("korvet:brokers", "1"), "its registration has not ended"
        assert until(lambda: brokers_of(peer) == [0, 1])
        other.kill()
        assert until(lambda: brokers_of(peer) == [0])
        assert redis.hexists("korvet:brokers", "1")
    one.close()


def test_a_broker_closes_its_connections_after_a_stall_and_serves_new_ones_at_once(
    tmp_path: Path, own_server: TestServer
) -> None:
    mine = started(tmp_path, own_server.url, connections_max_stall_ms="1000")
    topic = create_topic(mine.address)
    with Peer(mine.address) as idle:
        produced(idle, topic, b"v")
        with paused(mine.pid):
            pass
        with Peer(mine.address) as again:
            produced(again, topic, b"v")
        assert idle.ended()
    mine.close()
    assert mine.log.count("connections closed after a stall") == 1
    assert "Traceback" not in mine.log


def test_a_short_pause_closes_no_connection(tmp_path: Path, own_server: TestServer) -> None:
    mine = started(tmp_path, own_server.url, connections_max_stall_ms=NEVER_MS)
    topic = create_topic(mine.address)
    with Peer(mine.address) as peer:
        with paused(mine.pid):
            peer.send(request("Produce", 9, to_produce(topic, batch([b"v"]))))
        peer.answer()
        peer.socket.shutdown(socket.SHUT_RDWR)
    mine.close()
    assert "stall" not in mine.log


def test_worker_processes_and_connections_of_kafka_07_begin_nothing_old_either(
    tmp_path: Path, own_server: TestServer
) -> None:
    legacy = f"127.0.0.1:{free_port()}"
    options = ("--redis", own_server.url, "--workers", "2", "--legacy-listen", legacy)
    mine = Broker(tmp_path, {"connections.max.stall.ms": "1000"}, options)
    mine.start()
    with ExitStack() as stack:
        clients = [stack.enter_context(Peer(mine.address)) for _ in range(6)]
        old = stack.enter_context(Peer(legacy))
        topic = create_topic(mine.address)
        for process in psutil.Process(mine.pid).children():
            stack.enter_context(paused(process.pid))
        for number, client in enumerate(clients):
            client.send(request("CreateTopics", 5, to_create(f"late-{number}")))
        old.socket.sendall(wire.produce("late-07", wire.message(b"v")))
    with Peer(mine.address) as peer:
        produced(peer, topic, b"v")
    with own_server.client() as client:
        assert {topic.encode(), b":version"} == set(client.hkeys("korvet:topics"))
    mine.close()
    assert mine.log.count("connections closed after a stall") == 2


def test_clients_of_two_brokers_that_are_stopped_in_turn_see_no_late_effect(tmp_path: Path) -> None:
    assert stall_load.Load(seconds=15, longest=4, late=True, full=True).run(3, tmp_path) == []


@pytest.mark.parametrize("max_stall_ms", ["1000", NEVER_MS], ids=["noticed", "not noticed"])
def test_a_form_of_before_is_not_processed(
    tmp_path: Path, own_server: TestServer, max_stall_ms: str
) -> None:
    place = ("127.0.0.1", free_port())
    address = f"{place[0]}:{place[1]}"
    settings = {"connections.max.stall.ms": max_stall_ms}
    broker = Broker(tmp_path, settings, ("--redis", own_server.url, "--ops", address))
    broker.start()
    with httpx.Client(base_url=f"http://{address}", timeout=30) as browser:
        until(lambda: browser.get("/create-topic").status_code == 200)
        fields = {"csrf": token_in(browser.get("/create-topic").text), "partitions": "1"}
        form = urllib.parse.urlencode({**fields, "name": "late"})
        cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
        late = (
            f"POST /topics HTTP/1.1\r\nHost: {address}\r\nCookie: {cookie}\r\n"
            f"Content-Length: {len(form)}\r\n\r\n{form}"
        ).encode()
        with socket.create_connection(place) as old:
            old.sendall(f"GET /api/topics HTTP/1.1\r\nHost: {address}\r\n\r\n".encode())
            assert b"200" in old.recv(1 << 16)
            with paused(broker.pid):
                old.sendall(late)
                old.close()
        with httpx.Client(base_url=f"http://{address}", timeout=30) as other:
            token = token_in(other.get("/create-topic").text)
            done = other.post("/topics", data={**fields, "csrf": token, "name": "later"})
            assert done.status_code == 303
            topics = other.get("/api/topics").json()["topics"]
    assert [row["name"] for row in topics] == ["later"]
    broker.close()
