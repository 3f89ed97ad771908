"""Check rolling restarts of two brokers under producers without retries."""

import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
from confluent_kafka import Producer

from korvet import Korvet
from korvet.base.errors import ErrorCode
from korvet.broker.interceptors import PAUSE_MS, SERVED_S
from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic
from tests.interop.jvm import Jvm
from tests.support.raw_client import ROWS, Peer, batch, parsed, request, to_produce, until
from tests.support.redis_servers import TestServer

pytestmark = [pytest.mark.korvet_only, pytest.mark.slow]

SECONDS = 8


@pytest.fixture
def both(tmp_path: Path, valkey_server: TestServer) -> Iterator[list[Broker]]:
    """Two brokers on one Redis. Neither logs a traceback."""
    with valkey_server.client() as client:
        client.flushall()
    options = ("--redis", valkey_server.url, "--node-id")
    found = [Broker(tmp_path / node, {}, (*options, node)) for node in ("1", "2")]
    for broker in found:
        broker.start()
    yield found
    for broker in found:
        broker.close()
        assert "Traceback" not in broker.log, broker.log


def restart(both: list[Broker]) -> None:
    for broker in both:
        sleep(1)
        broker.stop()
        broker.start()


def stored(valkey_server: TestServer, topic: str) -> list[int]:
    """Return the numbers in the topic, in the order of partitions and offsets."""
    log, found = Korvet.connect(valkey_server.url), []
    for number in range(4):
        at = 0
        while records := (got := log.fetch(topic, number, at)).records:
            found += [int(row.value or b"") for row in records]
            at = got.next_offset
    log.close()
    return found


def test_a_java_producer_without_retries_reports_no_error(
    both: list[Broker], java: Jvm, valkey_server: TestServer
) -> None:
    servers = ",".join(broker.address for broker in both)
    topic = create_topic(servers, partitions=4)
    command = java.words("NoRetries", servers, topic, str(SECONDS))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None and running.stdout.readline() == "begun\n"
        restart(both)
        sent, acknowledged, failed = running.stdout.read().strip().split("\t")
    assert (acknowledged, failed) == (sent, "{}")
    assert sorted(stored(valkey_server, topic)) == list(range(int(sent)))


def test_librdkafka_without_retries_reports_no_error(
    both: list[Broker], valkey_server: TestServer
) -> None:
    servers = ",".join(broker.address for broker in both)
    topic = create_topic(servers, partitions=4)
    producer = Producer({"bootstrap.servers": servers, "retries": 0, "log_level": 0})
    failed: list[Any] = []
    restarting = threading.Thread(target=restart, args=(both,))
    restarting.start()
    sent, end = 0, monotonic() + SECONDS
    while monotonic() < end:
        producer.produce(
            topic,
            b"%d" % sent,
            partition=sent % 4,
            on_delivery=lambda error, message: error and failed.append(error),
        )
        producer.poll(0)
        sent += 1
        sleep(0.003)
    assert producer.flush(10) == 0
    restarting.join()
    assert failed == []
    assert sorted(stored(valkey_server, topic)) == list(range(sent))


def test_a_producer_that_may_not_repeat_is_served_and_asked_to_pause(both: list[Broker]) -> None:
    leaving, _ = both
    topic = create_topic(leaving.address)

    def ask(peer: Peer, data: bytes) -> tuple[int, int]:
        peer.send(request("Produce", 9, to_produce(topic, data)))
        _, answer = parsed(peer.answer(), ROWS["Produce"], 9)
        (row,) = answer.responses[0].partition_responses
        return row.error_code, answer.throttle_time_ms

    plain, repeating = batch([b"v"]), batch([b"v"], producer=(7, 0, 0))
    with (
        Peer(leaving.address) as pausing,
        Peer(leaving.address) as hasty,
        Peer(leaving.address) as idempotent,
    ):
        assert ask(pausing, plain) == (0, 0)
        leaving.terminate()
        assert until(lambda: ask(pausing, plain) == (0, PAUSE_MS))
        assert ask(idempotent, repeating) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)
        assert ask(hasty, plain) == (0, PAUSE_MS)
        began = monotonic()
        while (found := ask(hasty, plain)) == (0, PAUSE_MS):
            sleep(0.02)
        assert found == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)
        assert monotonic() - began + 0.1 >= SERVED_S
        assert pausing.socket.recv(1) == b"", "closed while the client is quiet"
    leaving.ended()
    leaving.start()
