"""Check seed 000, Producer: Send Messages: the request, the stream entries, the offsets."""

from typing import Any

import pytest
from confluent_kafka import KafkaError

from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic
from tests.interop.librdkafka import producer, read, send
from tests.interop.records import Record

BITS = 10
ORDERS = [
    Record(
        b"order-123",
        b'{"product":"widget","quantity":5}',
        (("source", b"web"), ("version", b"1.0")),
        1234567890000,
    ),
    Record(b"order-124", b'{"product":"gadget","quantity":3}', (), 1234567891000),
]


def as_offset(entry: bytes) -> int:
    """Return (timestamp << sequenceBits) | sequence as the offset of an entry."""
    milliseconds, sequence = map(int, entry.split(b"-"))
    return milliseconds << BITS | sequence


def test_the_two_orders_become_the_two_entries_shown(seed_broker: Broker, store: Any) -> None:
    topic = create_topic(seed_broker.address, partitions=3, retention_ms="-1")
    send(producer(seed_broker.address), topic, ORDERS)
    entries = [fields for _, fields in store.xrange(f"korvet:{topic}:0")]
    assert entries == [
        {
            b"key": b"order-123",
            b"value": b'{"product":"widget","quantity":5}',
            b"timestamp": b"1234567890000",
            b"header.source": b"web",
            b"header.version": b"1.0",
        },
        {
            b"key": b"order-124",
            b"value": b'{"product":"gadget","quantity":3}',
            b"timestamp": b"1234567891000",
        },
    ]


def test_offsets_are_the_entry_ids_and_back(seed_broker: Broker, store: Any) -> None:
    topic = create_topic(seed_broker.address)
    offsets = send(producer(seed_broker.address), topic, ORDERS * 3)
    entries = [entry for entry, _ in store.xrange(f"korvet:{topic}:0")]
    assert [as_offset(entry) for entry in entries] == offsets
    assert [f"{o >> BITS}-{o & (1 << BITS) - 1}".encode() for o in offsets] == entries


def test_the_worked_example_follows_the_formula() -> None:
    # The page prints another product. The formula is normative.
    assert as_offset(b"1234567890123-0") == 1264197519485952
    assert as_offset(b"1234567890123-1") == 1264197519485953


@pytest.mark.parametrize("acks", ["0", "1", "-1"])
def test_each_kind_of_acks_writes_the_record(seed_broker: Broker, store: Any, acks: str) -> None:
    topic = create_topic(seed_broker.address)
    sink = producer(seed_broker.address, acks=acks, enable_idempotence=False)
    sink.produce(topic, b"v", partition=0)
    assert sink.flush(60) == 0
    assert read(seed_broker.address, topic, 1)[0].value() == b"v"
    assert store.xlen(f"korvet:{topic}:0") == 1


def test_a_partition_that_does_not_exist_is_unknown(seed_broker: Broker) -> None:
    topic = create_topic(seed_broker.address)
    errors: list[int] = []
    sink = producer(seed_broker.address, message_timeout_ms=2000)
    sink.produce(topic, b"v", partition=5, on_delivery=lambda e, _: errors.append(e.code()))
    assert sink.flush(60) == 0
    assert errors in ([KafkaError._UNKNOWN_PARTITION], [KafkaError.UNKNOWN_TOPIC_OR_PART])
