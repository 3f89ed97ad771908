"""Check dead letters with real clients and killed servers: each is stored once, none is lost."""

from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import AcknowledgeType, Message
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic, topic_name
from tests.interop.librdkafka import eventually, producer, read, send
from tests.interop.records import Record
from tests.interop.share_members import ShareMember, Tally, configure_group

RECORDS = 300
LIMIT = 5
SETTINGS = {
    "group.share.record.lock.duration.ms": "1000",
    "errors.deadletterqueue.topic.name.prefix": "",
}


def choose(message: Message) -> AcknowledgeType:
    """Return REJECT for one record of ten, RELEASE for another, and ACCEPT for the rest."""
    last = int(message.value() or b"") % 10
    if last == 3:
        return AcknowledgeType.REJECT
    return AcknowledgeType.RELEASE if last == 7 else AcknowledgeType.ACCEPT


def header(message: Message, name: str) -> bytes:
    headers = dict(message.headers() or [])
    value = headers[f"__dlq.errors.{name}"]
    assert isinstance(value, bytes)
    return value


@pytest.mark.needs_api(78)
def test_dead_letters_have_the_headers_and_partitions_of_kafka(default_broker: Broker) -> None:
    """Apache Kafka 4.4 passes this test, too."""
    address, group, tally = default_broker.address, topic_name("share"), Tally()
    topic, queue = create_topic(address, 3), f"dlq.{group}"
    config = {"errors.deadletterqueue.group.enable": "true"}
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(queue, 2, 1, config=config)])[queue].result(60)
    configure_group(
        address,
        group,
        errors_deadletterqueue_topic_name=queue,
        errors_deadletterqueue_copy_record_enable="true",
        share_delivery_count_limit="2",
    )
    sink, offsets = producer(address), dict[tuple[bytes, int], int]()
    for partition in range(3):
        values = [b"%d" % (10 * partition + n) for n in (0, 3, 7)]
        appended = send(sink, topic, [Record(b"k", value) for value in values], partition)
        offsets |= {(value, partition): at for value, at in zip(values, appended, strict=True)}
    member = ShareMember(address, group, topic, tally, choose)
    found = read(address, queue, 4) + read(address, queue, 2, partition=1)
    member.stop()
    for one in found:
        value = one.value() or b""
        partition = int(header(one, "partition"))
        assert one.key() == b"k" and one.partition() == partition % 2
        assert int(header(one, "offset")) == offsets[value, partition]
        assert (header(one, "topic"), header(one, "group")) == (topic.encode(), group.encode())
        assert int(header(one, "delivery.count")) == (2 if value.endswith(b"7") else 1)
        assert header(one, "message")
    assert len({(one.value(), one.partition()) for one in found}) == 6


@pytest.mark.slow
@pytest.mark.korvet_only
@pytest.mark.parametrize("way", ["kill", "kill_everything"])
@pytest.mark.parametrize("form", ["batch", "record"])
def test_each_record_that_fails_is_a_dead_letter_once(tmp_path: Path, way: str, form: str) -> None:
    expected = sorted(b"%d" % n for n in range(RECORDS) if n % 10 in (3, 7))
    with Broker(tmp_path, SETTINGS) as broker:
        address, group, tally = broker.address, topic_name("share"), Tally()
        topic = create_topic(address, 2, storage_format=form)
        queue = create_topic(address, 1, errors_deadletterqueue_group_enable="true")
        configure_group(
            address,
            group,
            errors_deadletterqueue_topic_name=queue,
            errors_deadletterqueue_copy_record_enable="true",
        )
        members = [
            ShareMember(address, group, topic, tally, choose, max_poll_records="9")
            for _ in range(3)
        ]
        sink = producer(address)
        for third in range(3):
            for n in range(100 * third, 100 * third + 100, 5):
                send(sink, topic, [Record(None, b"%d" % m) for m in range(n, n + 5)], n // 5 % 2)
            # Some records are accepted, others are acquired.
            eventually(lambda: len(tally.accepted) > 60 * third + 20)  # noqa: B023
            getattr(broker, way)()
            broker.start()
        found = read(address, queue, len(expected))
        eventually(lambda: len(tally.accepted | tally.unsure) == RECORDS - len(expected))
        for member in members:
            member.stop()
        assert sorted(message.value() or b"" for message in found) == expected
        places = Counter((header(one, "partition"), header(one, "offset")) for one in found)
        assert set(places.values()) == {1}
        for one in found:
            is_released = (one.value() or b"").endswith(b"7")
            count = int(header(one, "delivery.count"))
            assert count == LIMIT if is_released else 1 <= count <= LIMIT
        # No other dead letter follows.
        send(sink, queue, [Record(None, b"end")])
        assert read(address, queue, len(expected) + 1)[-1].value() == b"end"
        assert tally.again == []
        assert "Traceback" not in broker.log
