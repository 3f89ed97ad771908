"""Compacted topics as real clients see them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic
from tests.interop.librdkafka import eventually, producer, send
from tests.interop.records import Record
from tests.interop.test_transactions import COMMITTED, transactional, values

pytestmark = pytest.mark.korvet_only


@pytest.fixture(params=["record", "batch"])
def compacting(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    """A broker that looks at its compacted topics all the time."""
    broker = Broker(tmp_path, {"log.cleaner.backoff.ms": "100", "storage.format": request.param})
    broker.start()
    yield broker
    broker.close()


def test_the_newest_value_of_every_key_is_left(compacting: Broker) -> None:
    address = compacting.address
    topic = create_topic(address, cleanup_policy="compact")
    sink = producer(address)
    for turn in range(5):
        send(sink, topic, [Record(b"%d" % n, b"%d.%d" % (n, turn)) for n in range(10)])
    send(sink, topic, [Record(b"end", b"end")])
    left = sorted([f"{n}.4" for n in range(10)] + ["end"])
    eventually(lambda: values(address, topic, COMMITTED) == left)
    # Writers go on where they were.
    send(sink, topic, [Record(b"3", b"new")])
    assert "new" in values(address, topic, COMMITTED)


def test_what_was_aborted_does_not_come_back(compacting: Broker) -> None:
    address = compacting.address
    topic = create_topic(address, cleanup_policy="compact")
    sink = transactional(address)
    for turn, end in enumerate([sink.commit_transaction, sink.abort_transaction] * 4):
        sink.begin_transaction()
        for n in range(5):
            sink.produce(topic, f"{turn}.{n}", key=f"{n}", partition=0)
        end(20)
    left = [f"6.{n}" for n in range(5)]
    eventually(lambda: values(address, topic, COMMITTED) == left)


def test_records_without_a_key_are_refused(compacting: Broker) -> None:
    topic = create_topic(compacting.address, cleanup_policy="compact")
    sink = producer(compacting.address)
    failed: list[KafkaError] = []
    sink.produce(topic, b"v", partition=0, on_delivery=lambda error, _: failed.append(error))
    assert sink.flush(10) == 0
    assert failed[0].code() == KafkaError.INVALID_RECORD
