"""Apache Kafka's own Java client at its default settings."""

import pytest

from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic, topic_name
from tests.interop.jvm import Jvm
from tests.interop.librdkafka import as_record, producer, read, send
from tests.interop.records import CODECS, EVERY_SHAPE, Record


def test_records_of_every_shape_come_back_as_sent(broker: Broker, java: Jvm) -> None:
    topics = {create_topic(broker.address): codec for codec in CODECS}
    said = java.interop(
        "roundtrip",
        broker.address,
        *(f"{topic}={codec}" for topic, codec in topics.items()),
        stdin="".join(line(record) + "\n" for record in EVERY_SHAPE),
    )
    for topic in topics:
        sent = [int(words[2]) for words in said if words[:2] == ["sent", topic]]
        found = [words[2:] for words in said if words[:2] == ["read", topic]]
        assert found == [[str(o), line(r)] for o, r in zip(sent, EVERY_SHAPE, strict=True)]
        assert ["end", topic, str(sent[-1] + 1)] in said
        others = read(broker.address, topic, len(EVERY_SHAPE))
        assert [as_record(message) for message in others] == list(EVERY_SHAPE)


def test_a_topic_lives_and_dies_by_the_admin_client(default_broker: Broker, java: Jvm) -> None:
    topic = topic_name()
    said = java.interop("admin", default_broker.address, topic)
    assert said[0][:2] == ["created", "2"]
    assert said[1] == ["described", "2", said[0][2]]
    assert said[2:] == [
        ["retention", "86400000"],
        ["retention", "1000000"],
        ["partitions", "3"],
        ["trimmed", "true", "true"],
        ["nodes", "1"],
        ["features", "true"],
        ["log dirs", "1"],
        ["listed", "true"],
        ["groups", "true"],
        ["deleted", topic],
    ]


@pytest.mark.parametrize(
    "protocol", ["classic", pytest.param("consumer", marks=pytest.mark.needs_api(68))]
)
def test_two_members_share_a_topic(default_broker: Broker, java: Jvm, protocol: str) -> None:
    address = default_broker.address
    topic = create_topic(address, partitions=2)
    offsets = [send(producer(address), topic, [Record(None, b"v")] * 5, p)[-1] for p in (0, 1)]
    said = java.interop("group", address, topic, topic_name("group"), protocol)
    assert said == [
        ["shared", "1", "1"],
        ["seen", "10"],
        *(["committed", str(p), str(offset + 1)] for p, offset in enumerate(offsets)),
    ]


@pytest.mark.needs_api(26)
def test_a_transaction_is_all_or_nothing(default_broker: Broker, java: Jvm) -> None:
    address = default_broker.address
    origin, copy = create_topic(address), create_topic(address)
    send(producer(address), origin, [Record(None, value) for value in (b"a", b"b", b"c", b"d")])
    said = java.interop("transactions", address, origin, copy, topic_name("group"))
    assert said == [["copied", "c"], ["copied", "d"], ["committed", "true"]]


def line(record: Record) -> str:
    """Return the record as the Java program prints it."""

    def hexed(value: bytes | None) -> str:
        return "-" if value is None else value.hex()

    headers = ",".join(f"{name.encode().hex()}={hexed(v)}" for name, v in record.headers)
    return f"{hexed(record.key)}|{hexed(record.value)}|{record.timestamp}|{headers}"
