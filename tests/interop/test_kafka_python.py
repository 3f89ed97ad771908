"""Check kafka-python at its default settings."""

import pytest

from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic, topic_name
from tests.interop.kafka_python import (
    CARRIED,
    TopicPartition,
    consumer,
    errors,
    named,
    read,
    send,
    take,
)
from tests.interop.records import CODECS, PRESENT, Record


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_every_shape_come_back_as_sent(broker: Broker, codec: str) -> None:
    topic = create_topic(broker.address)
    offsets = send(broker.address, topic, CARRIED, compression_type=named(codec))
    assert read(broker.address, topic, len(CARRIED)) == list(zip(offsets, CARRIED, strict=True))


def test_positions_are_sought_by_end_and_by_time(broker: Broker) -> None:
    topic = create_topic(broker.address)
    records = [Record(b"%d" % n, b"v", timestamp=PRESENT + 10 * n) for n in range(10)]
    offsets = send(broker.address, topic, records)
    place = TopicPartition(topic, 0)
    with consumer(broker.address) as source:
        source.assign([place])
        source.seek_to_beginning(place)
        assert take(source, 10)[0].offset == offsets[0]
        source.seek_to_end(place)
        assert source.position(place) == offsets[-1] + 1
        found = source.offsets_for_times({place: PRESENT + 35})
        assert found[place].offset == offsets[4]
        assert source.end_offsets([place]) == {place: offsets[-1] + 1}
        assert source.beginning_offsets([place])[place] <= offsets[0]


def test_a_position_beyond_the_end_is_out_of_range(default_broker: Broker) -> None:
    topic = create_topic(default_broker.address)
    (offset,) = send(default_broker.address, topic, [Record(b"k", b"v")])
    with consumer(default_broker.address, auto_offset_reset="none") as source:
        place = TopicPartition(topic, 0)
        source.assign([place])
        source.seek(place, offset + 5)
        with pytest.raises(errors.OffsetOutOfRangeError):
            take(source, 1)


def test_producing_to_an_unknown_topic_creates_it(default_broker: Broker) -> None:
    topic = topic_name("auto")
    send(default_broker.address, topic, [Record(b"k", b"v")])
    with consumer(default_broker.address) as source:
        assert topic in source.topics()


def test_the_partitions_of_a_topic_are_listed(default_broker: Broker) -> None:
    topic = create_topic(default_broker.address, partitions=5)
    with consumer(default_broker.address) as source:
        assert source.partitions_for_topic(topic) == set(range(5))
