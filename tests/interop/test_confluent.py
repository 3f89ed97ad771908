"""Check confluent-kafka (librdkafka) at default settings: produce, fetch, list offsets."""

import itertools

import pytest
from confluent_kafka import (
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from tests.interop import librdkafka
from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic, topic_name
from tests.interop.librdkafka import as_record, consumer, producer, read, send
from tests.interop.records import CODECS, EVERY_SHAPE, PRESENT, Record


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_every_shape_come_back_as_sent(broker: Broker, codec: str) -> None:
    topic = create_topic(broker.address)
    offsets = send(producer(broker.address, compression_type=codec), topic, EVERY_SHAPE)
    found = read(broker.address, topic, len(EVERY_SHAPE))
    assert [as_record(message) for message in found] == list(EVERY_SHAPE)
    assert [message.offset() for message in found] == offsets


def test_offsets_of_a_partition_increase(broker: Broker) -> None:
    topic = create_topic(broker.address)
    sink = producer(broker.address)
    offsets = [
        offset
        for round_ in range(5)
        for offset in send(sink, topic, [Record(b"%d" % round_, b"v")] * 40)
    ]
    assert all(left < right for left, right in itertools.pairwise(offsets))


def test_each_partition_is_a_separate_log(broker: Broker) -> None:
    topic = create_topic(broker.address, partitions=3)
    sink = producer(broker.address)
    for partition in (2, 0, 2):
        send(sink, topic, [Record(None, b"to %d" % partition)], partition)
    assert [m.value() for m in read(broker.address, topic, 1, partition=0)] == [b"to 0"]
    assert [m.value() for m in read(broker.address, topic, 2, partition=2)] == [b"to 2"] * 2
    start, end = _watermarks(broker, topic, 1)
    assert start == end


def test_reading_starts_at_any_acknowledged_offset(broker: Broker) -> None:
    topic = create_topic(broker.address)
    offsets = send(producer(broker.address), topic, [Record(b"%d" % n, b"v") for n in range(20)])
    for index in (0, 7, 19):
        found = read(broker.address, topic, 20 - index, start=offsets[index])
        assert [int(m.key()) for m in found] == list(range(index, 20))
        assert found[0].offset() == offsets[index]


def test_the_watermarks_frame_what_was_written(broker: Broker) -> None:
    topic = create_topic(broker.address)
    first = send(producer(broker.address), topic, EVERY_SHAPE)
    start, end = _watermarks(broker, topic)
    assert start <= first[0] and end == first[-1] + 1


def test_a_consumer_waiting_at_the_end_gets_what_comes_next(broker: Broker) -> None:
    topic = create_topic(broker.address)
    sink = producer(broker.address)
    send(sink, topic, [Record(b"before", b"v")] * 3)
    source = consumer(broker.address, enable_partition_eof=True)
    librdkafka.assign(source, [TopicPartition(topic, 0, OFFSET_END)])
    assert _end_of(source)
    offsets = send(sink, topic, [Record(b"after", b"v")])
    (found,) = librdkafka.take(source, 1)
    source.close()
    assert (found.key(), found.offset()) == (b"after", offsets[0])


def test_a_consumer_waiting_on_an_empty_partition_gets_the_first_record(broker: Broker) -> None:
    topic = create_topic(broker.address)
    source = consumer(broker.address, enable_partition_eof=True)
    librdkafka.assign(source, [TopicPartition(topic, 0, OFFSET_END)])
    assert _end_of(source)
    send(producer(broker.address), topic, [Record(b"first", b"v")])
    (found,) = librdkafka.take(source, 1)
    source.close()
    assert found.key() == b"first"


def test_offsets_are_found_by_timestamp(broker: Broker) -> None:
    topic = create_topic(broker.address)
    base = PRESENT
    records = [Record(b"%d" % n, b"v", timestamp=base + 1000 * n) for n in range(30)]
    sink = producer(broker.address)
    offsets = [o for lot in (records[:11], records[11:]) for o in send(sink, topic, lot)]
    source = consumer(broker.address)
    for when, index in ((0, 0), (base, 0), (base + 4999, 5), (base + 5000, 5), (base + 29_000, 29)):
        (found,) = source.offsets_for_times([TopicPartition(topic, 0, when)], 10)
        assert found.offset == offsets[index], when
    (late,) = source.offsets_for_times([TopicPartition(topic, 0, base + 29_001)], 10)
    source.close()
    assert late.offset == OFFSET_END


def test_seek_goes_back_and_forth(broker: Broker) -> None:
    topic = create_topic(broker.address)
    offsets = send(producer(broker.address), topic, [Record(b"%d" % n, b"v") for n in range(10)])
    source = consumer(broker.address)
    source.assign([TopicPartition(topic, 0, offsets[0])])
    assert len(librdkafka.take(source, 10)) == 10
    for index in (8, 2):
        source.seek(TopicPartition(topic, 0, offsets[index]))
        assert librdkafka.take(source, 1)[0].offset() == offsets[index]
    source.close()


def test_a_position_beyond_the_end_is_out_of_range(broker: Broker) -> None:
    topic = create_topic(broker.address)
    offsets = send(producer(broker.address), topic, [Record(b"k", b"v")])
    source = consumer(broker.address, auto_offset_reset="error")
    source.assign([TopicPartition(topic, 0, offsets[0] + 10)])
    (message,) = source.consume(1, timeout=60)
    source.close()
    assert message.error() is not None
    assert message.error().code() == KafkaError._AUTO_OFFSET_RESET


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acknowledgement_stores_the_record(default_broker: Broker, acks: str) -> None:
    topic = create_topic(default_broker.address)
    sink = producer(default_broker.address, acks=acks, enable_idempotence=False)
    sink.produce(topic, b"v", partition=0)
    assert sink.flush(60) == 0
    assert read(default_broker.address, topic, 1)[0].value() == b"v"


def test_a_record_above_the_topics_limit_is_refused(default_broker: Broker) -> None:
    topic = create_topic(default_broker.address, max_message_bytes="2000")
    sink = producer(default_broker.address)
    errors: list[int] = []
    sink.produce(topic, b"x" * 5000, on_delivery=lambda error, _: errors.append(error.code()))
    assert sink.flush(60) == 0
    assert errors == [KafkaError.MSG_SIZE_TOO_LARGE]
    send(sink, topic, [Record(None, b"small")])


def test_producing_to_an_unknown_topic_creates_it(broker: Broker) -> None:
    topic = topic_name("auto")
    send(producer(broker.address), topic, [Record(b"k", b"v")])
    assert read(broker.address, topic, 1)[0].value() == b"v"


def test_a_topic_that_may_not_be_created_is_unknown(default_broker: Broker) -> None:
    source = consumer(default_broker.address, allow_auto_create_topics=False)
    with pytest.raises(KafkaException) as refusal:
        source.get_watermark_offsets(TopicPartition(topic_name("absent"), 0), timeout=5)
    source.close()
    assert refusal.value.args[0].code() in (
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    )


def test_log_append_time_replaces_the_producers_clock(broker: Broker) -> None:
    topic = create_topic(broker.address, message_timestamp_type="LogAppendTime")
    send(producer(broker.address), topic, [Record(b"k", b"v", timestamp=PRESENT - 1000)] * 2)
    found = read(broker.address, topic, 2)
    assert {message.timestamp()[0] for message in found} == {2}
    assert min(message.timestamp()[1] for message in found) > PRESENT


def test_a_large_log_is_read_whole_in_small_fetches(broker: Broker) -> None:
    topic = create_topic(broker.address)
    records = [Record(b"%d" % n, b"x" * 200) for n in range(5000)]
    send(producer(broker.address, compression_type="lz4"), topic, records)
    found = read(
        broker.address, topic, 5000, fetch_message_max_bytes=20_000, fetch_max_bytes=1_000_000
    )
    assert [int(message.key()) for message in found] == list(range(5000))


def _watermarks(broker: Broker, topic: str, partition: int = 0) -> tuple[int, int]:
    source = consumer(broker.address)
    start, end = source.get_watermark_offsets(TopicPartition(topic, partition), timeout=60)
    source.close()
    return start, end


def _end_of(source: Consumer) -> bool:
    messages = librdkafka.eventually(lambda: source.consume(1, timeout=0.5))
    return bool(messages[0].error().code() == KafkaError._PARTITION_EOF)
