"""Check the five requests of Kafka 0.7 on a running broker, byte for byte."""

import os
import signal
import struct
import time
import urllib.request

import pytest
from redis import Redis

from tests.interop.librdkafka import eventually
from tests.legacy import wire
from tests.legacy.conftest import LegacyBroker
from tests.legacy.wire import (
    EARLIEST,
    LATEST,
    MULTIFETCH,
    MULTIPRODUCE,
    Client,
    message,
    produce,
    several,
)
from tests.support.ports import free_port
from tests.support.raw_client import alive
from tests.support.redis_servers import server

FAR = 2**62
ONE, TWO, THREE = (message(body) for body in (b"one", b"", b"three" * 100))
OLD = message(b"of Kafka 0.6", magic=0)
PACKED = wire.gzipped(b"first", b"second", b"third")
LOG = ONE + TWO + THREE + OLD + PACKED


@pytest.fixture
def written(client: Client, topic: str) -> str:
    """A topic whose log is LOG, produced as two message sets."""
    client.send(produce(topic, ONE + TWO) + produce(topic, THREE + OLD + PACKED))
    return topic


def test_what_was_sent_is_the_log_byte_for_byte(client: Client, written: str) -> None:
    assert client.fetch(written, 0) == (0, LOG)


@pytest.mark.parametrize("most", [0, 1, 9, 13, 14, 100, len(LOG) - 1, len(LOG), 10_000])
@pytest.mark.parametrize("offset", [0, 1, 13, 27, 200, len(LOG) - 1])
def test_a_fetch_cuts_the_log_as_if_it_were_one_file(
    client: Client, written: str, offset: int, most: int
) -> None:
    assert client.fetch(written, offset, most) == (0, LOG[offset : offset + most])


def test_the_end_is_empty_and_beyond_it_is_out_of_range(client: Client, written: str) -> None:
    assert client.fetch(written, len(LOG)) == (0, b"")
    assert client.fetch(written, len(LOG) + 1) == (1, b"")
    assert client.fetch(written, -1) == (1, b"")


def test_a_negative_size_is_an_invalid_fetch_size(client: Client, written: str) -> None:
    assert client.fetch(written, 0, -1) == (4, b"")


@pytest.mark.parametrize("partition", [-2, -1, 1, 2**31 - 1])
def test_a_partition_that_is_not_there_is_wrong(
    client: Client, written: str, partition: int
) -> None:
    assert client.fetch(written, 0, partition=partition) == (3, b"")
    error, rest = client.ask(wire.offsets(written, LATEST, partition=partition))
    assert (error, rest) == (3, b"\0\0\0\0")


def test_an_unknown_topic_is_empty_and_begins_at_zero(client: Client, topic: str) -> None:
    assert client.fetch(topic, 0) == (0, b"")
    assert client.fetch(topic, 77) == (0, b"")
    assert [client.offsets(topic, time) for time in (LATEST, EARLIEST, FAR, 0)] == [
        [0],
        [0],
        [],
        [],
    ]


def test_offsets_say_where_the_log_ends_and_begins(client: Client, written: str) -> None:
    assert client.offsets(written, LATEST, 1) == [len(LOG)]
    assert client.offsets(written, LATEST) == [len(LOG), 0]
    assert client.offsets(written, EARLIEST) == [0]
    assert client.offsets(written, FAR) == [len(LOG), 0]
    assert client.offsets(written, FAR, 1) == [len(LOG)]
    assert client.offsets(written, 1000) == []
    assert client.offsets(written, LATEST, 0) == []
    assert client.offsets(written, LATEST, -5) == []


def test_offsets_of_a_long_log_are_boundaries_of_sets_newest_first(
    client: Client, topic: str
) -> None:
    one = b"".join(message(bytes(1000)) for _ in range(100))
    for _ in range(5):
        client.send(produce(topic, one))
    found = client.offsets(topic, LATEST, 100)
    assert found[0] == 5 * len(one) and found[-1] == 0
    assert found == sorted(found, reverse=True) and len(found) > 2
    assert all(offset % len(one) == 0 for offset in found)


def test_offsets_before_a_timestamp_are_those_written_by_then(client: Client, topic: str) -> None:
    one = b"".join(message(bytes(1000)) for _ in range(70))
    moments = []
    for _ in range(4):
        client.send(produce(topic, one))
        assert client.fetch(topic, 0, 0) == (0, b"")
        began = time.time()
        while time.time() - began < 0.003:  # the next set gets a later millisecond
            pass
        moments.append(int(began * 1000) + 1)
    found = [client.offsets(topic, moment) for moment in moments]
    size = len(one)
    assert found[:3] == [[0], [size, 0], [2 * size, size, 0]]
    assert found[3] in ([3 * size, 2 * size, size, 0], [4 * size, 3 * size, 2 * size, size, 0])
    assert client.offsets(topic, moments[2], 2) == [2 * size, size]
    assert client.offsets(topic, moments[0] - 60_000) == []


def test_a_multifetch_answers_each_with_its_own_length_and_error(
    client: Client, written: str, topic: str
) -> None:
    asked = [
        wire.fetch(written, 0, 20),
        wire.fetch(written, len(LOG) + 9),
        wire.fetch(f"{topic}-unknown", 0),
    ]
    error, rest = client.ask(several(MULTIFETCH, asked))
    assert error == 0
    assert rest == (
        struct.pack(">ih", 22, 0) + LOG[:20] + struct.pack(">ih", 2, 1) + struct.pack(">ih", 2, 0)
    )


def test_a_multifetch_of_nothing_is_answered_with_nothing(client: Client) -> None:
    assert client.ask(several(MULTIFETCH, [])) == (0, b"")


def test_a_multiproduce_writes_to_each(client: Client, topic: str) -> None:
    other = f"{topic}-other"
    client.send(several(MULTIPRODUCE, [produce(topic, ONE), produce(other, TWO + THREE)]))
    assert client.fetch(topic, 0) == (0, ONE)
    assert client.fetch(other, 0) == (0, TWO + THREE)


def test_partition_minus_one_lets_the_broker_choose(own: LegacyBroker, topic: str) -> None:
    own.settings["legacy.num.partitions"] = "3"
    own.start()
    with own.client() as client:
        client.send(b"".join(produce(topic, ONE, -1) for _ in range(60)))
        found = [client.fetch(topic, 0, partition=number)[1] for number in range(3)]
        assert b"".join(found) == ONE * 60
        assert all(found)
        assert client.fetch(topic, 0, partition=3) == (3, b"")


def test_what_a_client_sent_before_it_hung_up_is_stored(
    broker: LegacyBroker, client: Client, topic: str
) -> None:
    with broker.client() as other:
        other.send(b"".join(produce(f"{topic}-{n % 3}", ONE) for n in range(30)))
    with broker.client() as last:
        last.send(produce(f"{topic}-0", TWO))
        assert last.fetch(f"{topic}-0", 0)[0] == 0


@pytest.mark.processes
@pytest.mark.parametrize("hangs_up", [True, False])
def test_a_broker_that_stops_stores_what_has_come(
    own: LegacyBroker, topic: str, hangs_up: bool
) -> None:
    with server("valkey") as running:
        own.options = ("--redis", running.url)
        own.start()
        with own.client() as client, Redis.from_url(running.url) as store:
            store.execute_command("CLIENT", "PAUSE", 1000)
            client.send(b"".join(produce(f"{topic}-{n % 3}", ONE) for n in range(60)))
            assert alive(own.address)  # so the broker has read the produce requests before it
            if hangs_up:
                client.__exit__()
            assert own.stop() == 0
        own.start()
        with own.client() as client:
            assert [client.fetch(f"{topic}-{n}", 0)[1] for n in range(3)] == [ONE * 20] * 3
        own.stop()


@pytest.mark.processes
def test_a_log_survives_a_restart(own: LegacyBroker, topic: str) -> None:
    own.start()
    with own.client() as client:
        client.send(produce(topic, LOG))
        assert client.fetch(topic, 0) == (0, LOG)
    assert own.stop() == 0
    own.start()
    with own.client() as client:
        assert client.fetch(topic, 5) == (0, LOG[5:])
        client.send(produce(topic, ONE))
        assert client.fetch(topic, len(LOG)) == (0, ONE)


def test_a_redis_outage_is_an_unknown_error_and_nothing_more(own: LegacyBroker, topic: str) -> None:
    with server("valkey") as redis:
        own.options = ("--redis", redis.url)
        own.start()
        with own.client() as client:
            client.send(produce(topic, ONE))
            assert client.fetch(topic, 0) == (0, ONE)
        os.kill(redis.pid, signal.SIGKILL)
        with own.client() as client:
            assert client.fetch(topic, 0) == (-1, b"")
            assert client.ask(wire.offsets(topic, LATEST)) == (-1, bytes(4))
            client.send(produce(topic, TWO))  # held or lost: see test_redis_away
            reported = ("produced sets wait for Redis", "produced set refused")
            eventually(lambda: any(line in own.log for line in reported))
    own.kill()  # a clean stop would wait some seconds for Redis
    assert "Traceback" not in own.log


def test_an_entry_that_is_no_message_does_not_move_the_end(own: LegacyBroker, topic: str) -> None:
    with server("valkey") as running:
        own.options = ("--redis", running.url)
        own.start()
        with own.client() as client, Redis.from_url(running.url) as store:
            client.send(produce(topic, ONE))
            assert client.fetch(topic, 0) == (0, ONE)
            store.xadd(f"korvet:{topic}:0", {"key": "k", "value": "v"})
            assert client.fetch(topic, 0) == (0, ONE)
            assert client.fetch(topic, len(ONE)) == (0, b"")
            client.send(produce(topic, TWO))
            assert client.fetch(topic, len(ONE)) == (0, TWO)
        own.stop()


def test_what_is_written_read_and_refused_is_counted(own: LegacyBroker, topic: str) -> None:
    port = free_port()
    own.options = ("--ops", f"127.0.0.1:{port}")
    own.start()
    with own.client() as client:
        client.send(produce(topic, ONE + PACKED) + produce(topic, ONE[:-1] + b"X"))
        assert client.fetch(topic, 0) == (0, ONE + PACKED)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as page:
        rows = dict(line.rsplit(" ", 1) for line in page.read().decode().splitlines())
    assert float(rows["korvet_produced_records_total"]) == 4
    assert float(rows["korvet_produced_bytes_total"]) == len(ONE + PACKED)
    assert float(rows["korvet_fetched_bytes_total"]) == len(ONE + PACKED)
    counted = {name: number for name, number in rows.items() if "Legacy" in name}
    assert any("LegacyProduceSet" in name and "REFUSED" in name for name in counted)
    assert any('api="LegacyFetch"' in name for name in counted)


def test_a_topic_name_that_differs_only_in_dots_is_not_created(
    own: LegacyBroker,
) -> None:
    own.start()
    with own.client() as client:
        client.send(produce("a.b", message(b"here")))
        client.send(produce("a_b", message(b"nowhere")))
        assert client.fetch("a.b", 0) == (0, message(b"here"))
        assert client.fetch("a_b", 0) == (0, b"")
    assert "Topic 'a_b' collides with existing topic: a.b" in own.log
