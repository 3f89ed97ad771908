"""Check seed 001, Consumer: Fetch Messages: start offsets, watermarks, waits, limits."""

from typing import Any

from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic
from tests.interop.librdkafka import as_record, consumer, eventually, producer, read, send, take
from tests.interop.records import PRESENT, Record

BITS = 10
ORDERS = [
    Record(b"order-123", b'{"product":"widget","quantity":5}', (("source", b"web"),), PRESENT),
    Record(b"order-124", b'{"product":"gadget","quantity":3}', (), PRESENT + 1000),
]


def watermarks(broker: Broker, topic: str) -> tuple[int, int]:
    """Return log_start_offset and high_watermark of partition 0."""
    source = consumer(broker.address)
    found: tuple[int, int] = source.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)
    source.close()
    return found


def test_entries_come_back_as_the_records_they_were(seed_broker: Broker) -> None:
    topic = create_topic(seed_broker.address)
    offsets = send(producer(seed_broker.address), topic, ORDERS)
    found = read(seed_broker.address, topic, 2, start=offsets[0])
    assert [as_record(message) for message in found] == ORDERS
    assert [message.offset() for message in found] == offsets


def test_the_high_watermark_is_one_past_the_last_entry(seed_broker: Broker, store: Any) -> None:
    topic = create_topic(seed_broker.address)
    send(producer(seed_broker.address), topic, ORDERS * 3)
    last = store.xinfo_stream(f"korvet:{topic}:0")["last-entry"][0]
    milliseconds, sequence = map(int, last.split(b"-"))
    assert watermarks(seed_broker, topic)[1] == (milliseconds << BITS | sequence) + 1


def test_the_log_start_is_the_first_entry(seed_broker: Broker, store: Any) -> None:
    topic = create_topic(seed_broker.address)
    send(producer(seed_broker.address), topic, ORDERS)
    first = store.xinfo_stream(f"korvet:{topic}:0")["first-entry"][0]
    milliseconds, sequence = map(int, first.split(b"-"))
    assert watermarks(seed_broker, topic)[0] == milliseconds << BITS | sequence


def test_a_fetch_at_offset_5_reads_on_from_there(seed_broker: Broker) -> None:
    topic = create_topic(seed_broker.address)
    offsets = send(producer(seed_broker.address), topic, ORDERS)
    found = read(seed_broker.address, topic, 2, start=5)
    assert [message.offset() for message in found] == offsets


def test_a_fetch_below_what_was_trimmed_is_out_of_range(seed_broker: Broker) -> None:
    topic = create_topic(seed_broker.address)
    offsets = send(producer(seed_broker.address), topic, ORDERS * 2)
    admin = AdminClient({"bootstrap.servers": seed_broker.address})
    place = TopicPartition(topic, 0, offsets[2])
    admin.delete_records([place])[place].result(60)
    source = consumer(seed_broker.address, auto_offset_reset="error")
    source.assign([TopicPartition(topic, 0, offsets[0])])
    (message,) = eventually(lambda: source.consume(1, timeout=1))
    source.close()
    assert message.error().code() == KafkaError._AUTO_OFFSET_RESET


def test_a_waiting_fetch_is_woken_by_the_append(seed_broker: Broker) -> None:
    topic = create_topic(seed_broker.address)
    # A fetch that waits for its full timeout responds too late for `take`.
    source = consumer(seed_broker.address, fetch_wait_max_ms=60_000, socket_timeout_ms=90_000)
    source.assign([TopicPartition(topic, 0)])
    assert source.consume(1, timeout=0.3) == []
    send(producer(seed_broker.address), topic, ORDERS[:1])
    (found,) = take(source, 1)
    source.close()
    assert as_record(found) == ORDERS[0]


def test_a_record_above_every_limit_is_still_returned(seed_broker: Broker) -> None:
    topic = create_topic(seed_broker.address)
    big = Record(b"big", b"x" * 200_000)
    send(producer(seed_broker.address), topic, [big, *ORDERS])
    found = read(
        seed_broker.address, topic, 3, fetch_message_max_bytes=1000, fetch_max_bytes=1_000_000
    )
    assert [as_record(message) for message in found] == [big, *ORDERS]


def test_no_transactions_means_that_all_that_is_written_is_stable(seed_broker: Broker) -> None:
    topic = create_topic(seed_broker.address)
    send(producer(seed_broker.address), topic, ORDERS)
    committed = read(seed_broker.address, topic, 2, isolation_level="read_committed")
    assert [as_record(message) for message in committed] == ORDERS
