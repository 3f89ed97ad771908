"""Check bad Kafka 0.7 requests: other clients are not affected, and the log has the reason."""

import gzip
import os
import random
import struct
from time import monotonic

import pytest

from korvet.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from tests.interop.conftest import change_broker
from tests.legacy import wire
from tests.legacy.conftest import LegacyBroker
from tests.legacy.wire import (
    FETCH,
    MULTIFETCH,
    MULTIPRODUCE,
    PRODUCE,
    Client,
    frame,
    message,
    place,
    produce,
    several,
)
from tests.support.raw_client import Peer

GOOD = message(b"good")

BROKEN = {
    "no type": b"\0\0\0\1\0",
    "a length of nought": bytes(4),
    "a negative length": struct.pack(">i", -1) + b"x",
    "an endless length": struct.pack(">i", 2**31 - 1) + b"x",
    "an unknown type": frame(5, place("t", 0)),
    "a negative type": frame(-1, place("t", 0)),
    "no topic": frame(FETCH, b"\0\0" + bytes(16)),
    "a topic longer than the frame": frame(FETCH, b"\x7f\xff" + bytes(16)),
    "a topic of a negative length": frame(FETCH, b"\xff\xff" + bytes(16)),
    "a topic that is no text": frame(FETCH, b"\0\3a\0b" + bytes(16)),
    "an end before the offset": frame(FETCH, place("t", 0) + bytes(7)),
    "bytes behind the end": frame(FETCH, place("t", 0) + bytes(13)),
    "a message set longer than the frame": frame(PRODUCE, place("t", 0) + b"\0\0\0\x7f" + GOOD),
    "a message set of a negative length": frame(PRODUCE, place("t", 0) + b"\xff\xff\xff\xff"),
    "a multifetch that says more": several(MULTIFETCH, [wire.fetch("t", 0)])[:6]
    + b"\x7f\xff"
    + wire.fetch("t", 0)[6:],
    "a multifetch that says less": frame(MULTIFETCH, b"\0\0" + wire.fetch("t", 0)[6:]),
    "a multiproduce of minus one": frame(MULTIPRODUCE, b"\xff\xff"),
    "a byte behind a fetch": wire.fetch("t", 0) + b"\0\0\0\1\0",
    "HTTP": b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
    "TLS": bytes.fromhex("16030102000100"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_frame_ends_its_connection_and_no_other(
    broker: LegacyBroker, client: Client, name: str, topic: str
) -> None:
    assert client.fetch(topic, 0) == (0, b"")
    before = broker.log.count("connection closed")
    with broker.client() as hostile:
        hostile.send(BROKEN[name])
        assert hostile.ended()
    assert broker.log.count("connection closed") == before + 1
    assert client.fetch(topic, 0) == (0, b"")


REFUSED = {
    "a wrong checksum": GOOD + GOOD[:-1] + b"X",
    "half a message": GOOD + GOOD[:-1],
    "compression in compression": message(gzip.compress(wire.gzipped(b"x")), codec=1),
    "a codec of Kafka 0.8": message(b"x", codec=3),
    "magic 2": b"\0\0\0\x0b\x02" + bytes(10),
    "a message of two megabytes": message(bytes(2 << 20)),
    "nothing": b"",
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_set_is_logged_and_nothing_of_it_is_stored(
    broker: LegacyBroker, client: Client, name: str, topic: str
) -> None:
    client.send(produce(topic, GOOD) + produce(topic, REFUSED[name]) + produce(topic, GOOD))
    assert client.fetch(topic, 0) == (0, GOOD + GOOD)
    (line,) = [row for row in broker.log.splitlines() if f"topic={topic} " in row]
    assert "produced set refused" in line and "client=127.0.0.1:" in line and "reason=" in line


def test_a_partition_that_is_not_there_stores_nothing(
    broker: LegacyBroker, client: Client, topic: str
) -> None:
    client.send(produce(topic, GOOD) + produce(topic, GOOD, 9) + produce(topic, GOOD, -2))
    assert client.fetch(topic, 0) == (0, GOOD)
    assert broker.log.count(f"topic={topic} partition=9") == 1


def test_a_bad_name_creates_nothing(broker: LegacyBroker, client: Client, topic: str) -> None:
    client.send(produce(f"{topic}:x", GOOD) + produce("..", GOOD) + produce(topic, GOOD))
    assert client.fetch(topic, 0) == (0, GOOD)
    assert f"{topic}:x" in broker.log


def test_a_bomb_is_bounded(broker: LegacyBroker, client: Client, topic: str) -> None:
    inner = message(bytes(1 << 20))
    bomb = message(gzip.compress(inner * 100), codec=1)
    assert len(bomb) < 200_000
    client.send(produce(topic, bomb) + produce(topic, GOOD))
    assert client.fetch(topic, 0) == (0, GOOD)


def test_requests_may_come_byte_by_byte(client: Client, topic: str) -> None:
    for byte in produce(topic, GOOD) + wire.fetch(topic, 0):
        client.send(bytes([byte]))
    assert client.receive() == b"\0\0" + GOOD


def test_five_hundred_requests_in_a_row_are_answered_in_order(client: Client, topic: str) -> None:
    client.send(b"".join(produce(topic, message(b"%03d" % n)) for n in range(500)))
    client.send(b"".join(wire.fetch(topic, 13 * n, 13) for n in range(500)))
    found = [client.receive() for _ in range(500)]
    assert found == [b"\0\0" + message(b"%03d" % n) for n in range(500)]


def test_random_frames_affect_no_other_connection(
    broker: LegacyBroker, client: Client, topic: str
) -> None:
    dice = random.Random(7)
    for _ in range(40):
        with broker.client() as hostile:
            body = struct.pack(">h", dice.randrange(5)) + dice.randbytes(dice.randrange(60))
            hostile.send(struct.pack(">i", len(body)) + body)
    client.send(produce(topic, GOOD))
    assert client.fetch(topic, 0) == (0, GOOD)


def test_a_frame_that_only_announces_much_costs_nothing(broker: LegacyBroker) -> None:
    assert broker._process is not None
    path = f"/proc/{broker._process.pid}/statm"
    if not os.path.exists(path):
        pytest.fail("this test reads /proc")

    def resident() -> int:
        with open(path) as file:
            return int(file.read().split()[1]) * 4096

    before = resident()
    clients = [broker.client() for _ in range(50)]
    for one in clients:
        one.send(struct.pack(">i", 100_000_000) + b"\0\0")
    with broker.client() as client:
        assert client.fetch("any", 0) == (0, b"")
    assert resident() - before < 100_000_000
    for one in clients:
        one.__exit__()


def test_a_limit_of_connections_that_is_changed_holds_on_this_port_too(own: LegacyBroker) -> None:
    own.start()
    change_broker(own.address, max_connections="0")
    with own.client() as late:
        assert late.ended()
        assert 'reason="too many connections"' in own.log


MODERN = {
    "ApiVersions 3": bytes.fromhex("0012000300000001") + b"\0\4test\0" + b"\5test\0021\0",
    "ApiVersions 0": bytes.fromhex("0012000000000001") + b"\0\4test",
    "Metadata 0": bytes.fromhex("0003000000000001") + b"\0\4test" + bytes(4),
    "Metadata 12": bytes.fromhex("0003000c00000001") + b"\0\4test" + b"\0\1\0\0",
    "Fetch 0": bytes.fromhex("0001000000000001") + b"\0\4test" + b"\xff" * 4 + bytes(12),
    "Produce 0": bytes.fromhex("0000000000000001") + b"\0\4test" + b"\0\1" + bytes(8),
}


@pytest.mark.parametrize("name", MODERN)
def test_a_newer_client_on_this_port_is_named_in_the_log(broker: LegacyBroker, name: str) -> None:
    before = broker.log.count("Kafka 0.8 or newer")
    with broker.client() as modern:
        modern.send(struct.pack(">i", len(MODERN[name])) + MODERN[name])
        assert modern.ended()
    assert broker.log.count("Kafka 0.8 or newer") == before + 1


OLD = {
    "produce": produce("topic", GOOD),
    "fetch": wire.fetch("topic", 0),
    "offsets": wire.offsets("a-topic-with-a-long-name", -1),
    "multifetch": several(MULTIFETCH, [wire.fetch("topic", 0)] * 2),
    "multiproduce": several(MULTIPRODUCE, [produce("topic", GOOD)] * 2),
}


@pytest.mark.parametrize("name", OLD)
def test_an_old_client_on_the_main_port_is_named_in_the_log(
    broker: LegacyBroker, name: str
) -> None:
    before = broker.log.count("Kafka 0.7 request")
    with Client(broker.address) as old:
        old.send(OLD[name])
        assert old.ended()
    assert broker.log.count("Kafka 0.7 request") == before + 1


def set_quota(broker: LegacyBroker, **rates: float) -> None:
    """Set the default quotas of users."""
    entry = EntryData(
        entity=[EntityData(entity_type="user", entity_name=None)],
        ops=[OpData(key=key, value=rate, remove=False) for key, rate in rates.items()],
    )
    request = AlterClientQuotasRequest(entries=[entry], validate_only=False)
    with Peer(broker.address) as peer:
        assert peer.ask("AlterClientQuotas", 1, request).entries[0].error_code == 0


def test_quotas_hold_for_clients_of_07(own: LegacyBroker) -> None:
    own.start()
    with own.client() as before:
        before.send(produce("t", GOOD))
        assert before.fetch("t", 0) == (0, GOOD)
    set_quota(
        own, producer_byte_rate=100_000, consumer_byte_rate=100_000, controller_mutation_rate=0.01
    )
    large = message(b"x" * 60_000)
    for request in (produce("t", large), wire.fetch("t", len(GOOD))):
        with own.client() as client:
            began = monotonic()
            client.send(request + wire.fetch("t", 0, most=len(GOOD)))
            client.receive()
            if request[4:6] == wire.fetch("t", 0)[4:6]:
                client.receive()
            # 60 KB take 0.6 s at 100 KB/s, and a tenth of a second of the rate is free.
            assert monotonic() - began >= 0.4
    with own.client() as client:
        client.send(produce("one", GOOD) + produce("two", GOOD))
        assert client.fetch("one", 0) == (0, GOOD)
        assert client.fetch("two", 0) == (0, b"")
    assert "controller_mutation_rate is used up" in own.log
