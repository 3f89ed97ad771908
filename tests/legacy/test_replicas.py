"""Check acks that wait for Redis replicas or for fsync."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from korvet.base.errors import ErrorCode
from korvet.wire.message_sets import build
from korvet.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from korvet.wire.schema import decode, encode
from tests.interop.brokers import Broker
from tests.legacy.wire import Client
from tests.support.redis_servers import Replicated, replicated, server

pytestmark = pytest.mark.processes

RECORDS = [(0, 0, None, b"payload", [])]


def produced(broker: Broker, topic: str, acks: int, timeout_ms: int = 3000) -> tuple[int, int]:
    """Send one Produce version 1 and return the error code and the offset."""
    request = ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            TopicProduceData(
                name=topic,
                partition_data=[
                    PartitionProduceData(index=0, records=bytes(build(RECORDS, magic=0)))
                ],
            )
        ],
    )
    head = b"\x00\x00\x00\x01\x00\x00\x00\x07\xff\xff"  # Produce 1, correlation 7, no client id
    body = head + encode(request, 1)
    with Client(broker.address) as client:
        client.send(len(body).to_bytes(4, "big") + body)
        answer = decode(ProduceResponse, client.receive(), 1, 4)
    (row,) = answer.responses[0].partition_responses
    return row.error_code, row.base_offset


@pytest.fixture(scope="module")
def pair() -> Iterator[Replicated]:
    """A master and a replica that is synchronized."""
    with replicated() as running:
        yield running


@pytest.fixture
def copied(pair: Replicated, tmp_path: Path) -> Iterator[Broker]:
    """A broker that uses the master of the pair."""
    broker = Broker(
        tmp_path,
        {"offset.mode": "dense"},
        ("--redis", f"redis://127.0.0.1:{pair.port}", "--namespace", tmp_path.name),
    )
    yield broker
    broker.close()


@pytest.fixture
def stopped(pair: Replicated) -> Iterator[None]:
    """The replica stopped by SIGSTOP: it replies to nothing, and its connection stays open."""
    with pair.frozen():
        yield


def test_acks_2_succeeds_once_the_replica_has_the_record(copied: Broker, pair: Replicated) -> None:
    copied.start()
    assert produced(copied, "orders", 2) == (0, 0)
    key = f"{copied.folder.name}:orders:0"
    with pair.replica.client() as replica:
        assert replica.xlen(key) == 1


def test_three_copies_are_too_many_for_one_replica(copied: Broker, pair: Replicated) -> None:
    copied.start()
    assert produced(copied, "orders", 3) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
    with redis.Redis(port=pair.port) as master:
        assert master.xlen(f"{copied.folder.name}:orders:0") == 0


def test_a_replica_that_does_not_follow_is_too_late(copied: Broker, stopped: None) -> None:
    copied.start()
    late = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert produced(copied, "orders", 2, timeout_ms=300) == (late, 0)
    assert produced(copied, "orders", 1) == (0, 1)
    assert produced(copied, "orders", -1) == (0, 2)


def test_acks_all_waits_for_the_configured_replicas(copied: Broker) -> None:
    copied.settings["acks.all.wait.replicas"] = "1"
    copied.start()
    assert produced(copied, "orders", -1) == (0, 0)
    copied.settings["acks.all.wait.replicas"] = "2"
    copied.stop()
    copied.start()
    assert produced(copied, "orders", -1) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
    assert produced(copied, "orders", 1) == (0, 1)


def test_acks_all_waits_for_the_disk(copied: Broker) -> None:
    copied.settings["acks.all.fsync"] = "true"
    copied.start()
    assert [produced(copied, "orders", -1) for _ in range(3)] == [(0, 0), (0, 1), (0, 2)]


def test_acks_all_waits_for_the_disk_of_the_embedded_redis(tmp_path: Path) -> None:
    broker = Broker(tmp_path, {"offset.mode": "dense", "acks.all.fsync": "true"})
    broker.start()
    try:
        assert [produced(broker, "orders", -1) for _ in range(3)] == [(0, 0), (0, 1), (0, 2)]
        assert produced(broker, "orders", 1) == (0, 3)
    finally:
        broker.close()


def test_an_external_redis_that_never_syncs_keeps_its_config(tmp_path: Path) -> None:
    with server("valkey", "--appendonly", "yes", "--appendfsync", "no") as theirs:
        settings = {"offset.mode": "dense", "acks.all.fsync": "true"}
        broker = Broker(tmp_path, settings, ("--redis", theirs.url))
        broker.start()
        try:
            produced(broker, "orders", -1, timeout_ms=300)
            with theirs.client() as client:
                assert client.config_get("appendfsync") == {"appendfsync": "no"}
        finally:
            broker.close()


def test_a_single_redis_has_one_copy_only(tmp_path: Path) -> None:
    broker = Broker(tmp_path, {"offset.mode": "dense"})
    broker.start()
    try:
        assert produced(broker, "orders", 2) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
        assert produced(broker, "orders", 1) == (0, 0)
    finally:
        broker.close()
