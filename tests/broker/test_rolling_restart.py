"""Check that a stopping broker hands its clients over without an error or a lost record."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer

from tests.broker.ops.test_metrics import page
from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic
from tests.support.ports import free_port
from tests.support.raw_client import until
from tests.support.redis_servers import TestServer

pytestmark = pytest.mark.slow
PARTITIONS = 4


@pytest.fixture
def pair(tmp_path: Path, own_server: TestServer) -> Iterator[tuple[Broker, Broker]]:
    """Two brokers on one Redis; the first has an ops port in its options."""
    brokers = []
    for number in range(2):
        options = ("--redis", own_server.url, "--node-id", str(number))
        options += ("--ops", f"127.0.0.1:{free_port()}")
        brokers.append(Broker(tmp_path / str(number), {}, options))
        brokers[-1].start()
    yield brokers[0], brokers[1]
    for each in brokers:
        each.close()
        assert "Traceback" not in each.log


class Clients:
    """A producer and a member of a group of each protocol, with all errors they report."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.errors: list[str] = []
        self.sent = 0
        self.acknowledged: list[int] = []
        self.read: dict[str, list[bytes]] = {"classic": [], "consumer": []}
        self._topic = topic
        self._stop = threading.Event()
        self._options = {"bootstrap.servers": bootstrap, "error_cb": self._report, "log_level": 0}
        names = ["produce", *self.read]
        self._threads = [threading.Thread(target=self._run, args=(name,)) for name in names]

    def __enter__(self) -> "Clients":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _report(self, error: KafkaError) -> None:
        self.errors.append(f"{error.name()}: {error}")

    def _run(self, name: str) -> None:
        if name == "produce":
            self._produce()
        else:
            self._consume(name)

    def _produce(self) -> None:
        producer = Producer(self._options | {"enable.idempotence": True, "linger.ms": 2})

        def delivered(error: KafkaError | None, message: Any) -> None:
            if error is None:
                self.acknowledged.append(int(message.value()))
            else:
                self._report(error)

        while not self._stop.wait(0.005):
            value = str(self.sent)
            producer.produce(
                self._topic, value, partition=self.sent % PARTITIONS, on_delivery=delivered
            )
            self.sent += 1
            producer.poll(0)
        producer.flush(30)

    def _consume(self, protocol: str) -> None:
        options = {"group.id": protocol, "group.protocol": protocol}
        consumer = Consumer(self._options | options | {"auto.offset.reset": "earliest"})
        consumer.subscribe([self._topic])
        read = self.read[protocol]
        while not self._stop.is_set() or len(read) < self.sent:
            message = consumer.poll(0.2)
            if message is not None and message.error() is not None:
                self._report(message.error())
            elif message is not None:
                read.append(message.value())
        consumer.close()


def test_clients_move_to_the_other_broker_without_an_error(pair: tuple[Broker, Broker]) -> None:
    topic = create_topic(pair[0].address, partitions=PARTITIONS, offset_mode="dense")
    bootstrap = ",".join(each.address for each in pair)
    port = int(pair[0].options[-1].rpartition(":")[2])
    answers: list[tuple[int, str]] = []

    def probe() -> None:
        while not answers or answers[-1][0] != 503:
            answers.append(page(port, "/readyz"))

    with Clients(bootstrap, topic) as clients:
        assert until(lambda: all(len(read) > 200 for read in clients.read.values()))
        probes = threading.Thread(target=probe)
        probes.start()
        assert pair[0].stop() == 0
        probes.join()
        sent = clients.sent
        assert until(lambda: clients.sent > sent + 200)
    assert answers[-1] == (503, "the broker is stopping\n")
    assert clients.errors == []
    assert sorted(clients.acknowledged) == list(range(clients.sent))
    for read in clients.read.values():
        for partition in range(PARTITIONS):
            values = [int(value) for value in read if int(value) % PARTITIONS == partition]
            assert values == sorted(set(values)), "each once and in order"
        assert len(read) == clients.sent
