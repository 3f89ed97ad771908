"""Compacted topics as real clients see them."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.interop.brokers import Broker
from tests.interop.conftest import change_broker, create_topic
from tests.interop.librdkafka import assign, consumer, eventually, producer, read, send
from tests.interop.records import Record
from tests.interop.test_transactions import COMMITTED, transactional, values

pytestmark = pytest.mark.korvet_only
EAGER = {"min_cleanable_dirty_ratio": "0.01"}


@pytest.fixture(scope="module", params=["record", "batch"])
def compacting(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    """A broker whose log cleaner runs every 100 ms."""
    folder = tmp_path_factory.mktemp("compacting")
    broker = Broker(folder, {"log.cleaner.backoff.ms": "100", "storage.format": request.param})
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
    # A producer continues after the compaction.
    send(sink, topic, [Record(b"3", b"new")])
    assert "new" in values(address, topic, COMMITTED)


def test_how_often_compacted_topics_are_looked_at_may_change_while_brokers_run(
    tmp_path: Path,
) -> None:
    with Broker(tmp_path, {"log.cleaner.backoff.ms": "3600000"}) as broker:
        topic = create_topic(broker.address, cleanup_policy="compact", **EAGER)
        sink = producer(broker.address)
        for turn in range(3):
            send(sink, topic, [Record(b"k", b"%d" % turn)])
        send(sink, topic, [Record(b"end", b"end")])
        change_broker(broker.address, log_cleaner_backoff_ms="100")
        eventually(lambda: values(broker.address, topic, COMMITTED) == ["2", "end"])


def test_what_was_aborted_does_not_come_back(compacting: Broker) -> None:
    address = compacting.address
    topic = create_topic(address, cleanup_policy="compact", **EAGER)
    sink = transactional(address)
    for turn, end in enumerate([sink.commit_transaction, sink.abort_transaction] * 4):
        sink.begin_transaction()
        for n in range(5):
            sink.produce(topic, f"{turn}.{n}", key=f"{n}", partition=0)
        end(60)
    left = [f"6.{n}" for n in range(5)]
    eventually(lambda: values(address, topic, COMMITTED) == left)


def test_a_compacted_topic_behaves_as_kafkas(compacting: Broker) -> None:
    """The expected values are those of an Apache Kafka 4.3 node after its cleaner has run."""
    address = compacting.address
    topic = create_topic(address, cleanup_policy="compact", delete_retention_ms="1500", **EAGER)
    sink, now = producer(address), round(time.time() * 1000)
    sent = [
        send(sink, topic, [Record(b"%d" % key, b"%d" % turn, (("h", b"%d" % turn),), now + turn)])[
            0
        ]
        for turn in range(4)
        for key in range(3)
    ]
    (tombstone,) = send(sink, topic, [Record(b"1", None, (), now + 9)])
    (end,) = send(sink, topic, [Record(b"end", b"", (), now + 10)])
    zero, two, last = (sent[9], b"0", b"3"), (sent[11], b"2", b"3"), (end, b"end", b"")

    def left() -> list[tuple[int | None, bytes | None, bytes | None]]:
        found = until_end(address, topic)
        return [(message.offset(), message.key(), message.value()) for message in found]

    eventually(lambda: left() == [zero, two, (tombstone, b"1", None), last])
    # A read inside a gap returns the next record, with its first headers and timestamp.
    message = read(address, topic, 1, start=sent[1])[0]
    assert (message.offset(), message.headers()) == (zero[0], [("h", b"3")])
    assert message.timestamp()[1] == now + 3
    admin, place = AdminClient({"bootstrap.servers": address}), TopicPartition(topic, 0)
    asked = [OffsetSpec.latest(), OffsetSpec.max_timestamp(), OffsetSpec.for_timestamp(now + 2)]
    found = [admin.list_offsets({place: spec})[place].result(60).offset for spec in asked]
    assert found == [end + 1, end, zero[0]]
    with pytest.raises(KafkaException) as refused:
        admin.delete_records([TopicPartition(topic, 0, two[0])])[place].result(60)
    assert refused.value.args[0].code() == KafkaError.POLICY_VIOLATION
    # The tombstone is removed, too, after delete.retention.ms.
    eventually(lambda: left() == [zero, two, last])


def test_records_of_a_compacted_topic_with_retention_are_deleted(compacting: Broker) -> None:
    address = compacting.address
    topic = create_topic(address, cleanup_policy="compact,delete", **EAGER)
    sink = producer(address)
    for turn in range(3):
        offsets = send(sink, topic, [Record(b"%d" % n, b"%d" % turn) for n in range(3)])
    eventually(lambda: len(until_end(address, topic)) == 3)
    admin, place = AdminClient({"bootstrap.servers": address}), TopicPartition(topic, 0)
    done = admin.delete_records([TopicPartition(topic, 0, offsets[2])])[place].result(60)
    assert done.low_watermark == offsets[2]
    assert [message.offset() for message in until_end(address, topic)] == offsets[2:]


def until_end(address: str, topic: str) -> list[Message]:
    """Return what a new consumer reads up to the end of the partition."""
    source = consumer(address, enable_partition_eof=True)
    assign(source, [TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found: list[Message] = []
    while True:
        for message in source.consume(100, timeout=0.05):
            if message.error():
                assert message.error().code() == KafkaError._PARTITION_EOF
                source.close()
                return found
            found.append(message)


def test_records_without_a_key_are_refused(compacting: Broker) -> None:
    topic = create_topic(compacting.address, cleanup_policy="compact")
    sink = producer(compacting.address)
    failed: list[KafkaError] = []
    sink.produce(topic, b"v", partition=0, on_delivery=lambda error, _: failed.append(error))
    assert sink.flush(60) == 0
    assert failed[0].code() == KafkaError.INVALID_RECORD
