"""Check the Kafka 0.7 clients that are still available, unmodified, with current clients."""

import pytest

from tests.interop.jvm import Jvm
from tests.interop.records import Record
from tests.legacy.clients import HERE, Node
from tests.legacy.conftest import LegacyBroker
from tests.legacy.modern import consumed, send
from tests.legacy.wire import Client, message, payloads
from tests.support.programs import NPM_INSTALL, Build


@pytest.fixture(scope="session")
def npm(build: Build) -> Node:
    return Node(build(HERE / "node", NPM_INSTALL))


def place(broker: LegacyBroker) -> tuple[str, str]:
    host, _, port = broker.legacy.rpartition(":")
    return host, port


def fetched(jafka: Jvm, broker: LegacyBroker, topic: str, size: int = 100_000) -> list[str]:
    out = jafka.run("Old07", "fetch", *place(broker), topic, "0", "0", str(size))
    return [line.split("\t")[1] for line in out.splitlines()]


def test_java_produces_and_fetches(jafka: Jvm, broker: LegacyBroker, topic: str) -> None:
    jafka.run("Old07", "sync", *place(broker), topic, "0", "0", "one", "two")
    jafka.run("Old07", "sync", *place(broker), topic, "-1", "1", "three", "four", "five")
    jafka.run("Old07", "send", "broker.list", f"0:{broker.legacy}", topic, "1", "six")
    expected = ["one", "two", "three", "four", "five", "six"]
    assert fetched(jafka, broker, topic) == expected
    assert [row.value().decode() for row in consumed(broker.address, topic, 6)] == expected


def test_java_sends_and_fetches_several_at_once(
    jafka: Jvm, broker: LegacyBroker, topic: str
) -> None:
    other = f"{topic}-other"
    jafka.run("Old07", "multi", *place(broker), "0", topic, "a", other, "b", topic, "c")
    out = jafka.run("Old07", "multifetch", *place(broker), topic, other)
    assert out.splitlines() == [f"{topic}\ta", f"{topic}\tc", f"{other}\tb"]


def test_java_requests_offsets(jafka: Jvm, broker: LegacyBroker, topic: str) -> None:
    def asked(time: int) -> list[str]:
        words = (*place(broker), topic, "0", str(time), "10")
        return jafka.run("Old07", "offsets", *words).split()

    assert (asked(-1), asked(-2)) == (["0"], ["0"])
    jafka.run("Old07", "sync", *place(broker), topic, "0", "0", "12345")
    assert (asked(-1), asked(-2), asked(1)) == (["15", "0"], ["0"], [])


def test_java_reads_what_a_current_client_writes(
    jafka: Jvm, broker: LegacyBroker, topic: str
) -> None:
    jafka.run("Old07", "sync", *place(broker), topic, "0", "0", "old")
    send(broker.address, topic, [Record(b"k", b"new %d" % n, (("h", b"1"),)) for n in range(50)])
    assert fetched(jafka, broker, topic, 60) == ["old", *(f"new {n}" for n in range(50))]


def test_node_produces_and_consumes(npm: Node, broker: LegacyBroker, topic: str) -> None:
    _, port = place(broker)
    npm.run("produce", port, topic, "one", "two", "three")
    assert npm.run("consume", port, topic, "3") == [
        [topic, "12", "one"],
        [topic, "24", "two"],
        [topic, "38", "three"],
    ]
    values = [row.value() for row in consumed(broker.address, topic, 3)]
    assert values == [b"one", b"two", b"three"]


def test_node_requests_offsets_with_seconds_for_milliseconds(
    npm: Node, broker: LegacyBroker, topic: str
) -> None:
    _, port = place(broker)
    npm.run("produce", port, topic, "one")
    assert npm.run("offsets", port, topic)[0][0] == topic


def test_java_and_node_share_a_topic_with_a_current_client(
    jafka: Jvm, npm: Node, broker: LegacyBroker, client: Client, topic: str
) -> None:
    _, port = place(broker)
    jafka.run("Old07", "sync", *place(broker), topic, "0", "1", "j1", "j2")
    npm.run("produce", port, topic, "n1")
    send(broker.address, topic, [Record(None, b"m1")])
    jafka.run("Old07", "sync", *place(broker), topic, "0", "0", "j3")
    expected = [b"j1", b"j2", b"n1", b"m1", b"j3"]
    assert [row.value() for row in consumed(broker.address, topic, 5)] == expected
    found = consumed(broker.address, topic, 3, 2)
    error, data = client.fetch(topic, found[0].offset())
    assert (error, payloads(data)) == (0, [b"n1", b"m1", b"j3"])
    assert data.endswith(message(b"m1") + message(b"j3"))
