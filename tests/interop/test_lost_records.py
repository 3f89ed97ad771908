"""Check that each client notices records that it has read and Redis has lost, at their offset."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, TopicPartition

from tests.interop import lost_programs
from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic
from tests.interop.jvm import HERE, prepared
from tests.interop.librdkafka import consumer, eventually, producer, send
from tests.interop.records import Record
from tests.support.programs import Build
from tests.support.raw_client import Peer, batch, to_produce, until
from tests.support.redis_servers import OwnRedis

Reader = Iterator[str]
modes = pytest.mark.parametrize("mode", ["dense", "time"])
pytestmark = pytest.mark.korvet_only


@pytest.fixture
def restarting(tmp_path: Path, redis_on_disk: OwnRedis) -> Iterator[Broker]:
    """A broker on that Redis."""
    broker = Broker(tmp_path / "broker", {}, ("--redis", redis_on_disk.url))
    broker.start()
    yield broker
    broker.close()


def acknowledged(broker: Broker, topic: str) -> int:
    """Produce a record until a broker acknowledges it, and return its offset."""
    while True:
        with suppress(OSError, EOFError), Peer(broker.address) as peer:
            answer = peer.ask("Produce", 9, to_produce(topic, batch([b"v"])))
            [row] = answer.responses[0].partition_responses
            if not row.error_code:
                return int(row.base_offset)


def test_no_offset_is_given_twice_by_two_brokers(
    restarting: Broker, redis_on_disk: OwnRedis, tmp_path: Path
) -> None:
    """Check it if the broker that knows of lost records is paused while Redis starts."""
    options = ("--redis", redis_on_disk.url, "--node-id", "7")
    with Broker(tmp_path / "other", {}, options) as other:
        topic = create_topic(restarting.address, offset_mode="dense")
        given = [acknowledged(restarting, topic)]
        redis_on_disk.copy(tmp_path / "data")
        given += [acknowledged(other, topic) for _ in range(5)]
        with redis_on_disk.client() as client:
            before = client.hget("korvet:cluster", "epoch_begun")
        os.kill(other.pid, signal.SIGSTOP)
        redis_on_disk.start_with(tmp_path / "data")
        with redis_on_disk.client() as client, ThreadPoolExecutor() as threads:
            later = threads.submit(acknowledged, restarting, topic)
            assert until(lambda: client.hget("korvet:cluster", "epoch_begun") != before)
            os.kill(other.pid, signal.SIGCONT)
            given += [later.result(), acknowledged(other, topic)]
        assert given == sorted(set(given))
        assert "records lost" in other.log


@contextmanager
def process(*words: str) -> Iterator[Reader]:
    """Yield the lines of a client that runs as a process."""
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        try:
            yield (line.rstrip("\n") for line in running.stdout)
        finally:
            running.kill()


def lose(
    broker: Broker,
    redis_on_disk: OwnRedis,
    folder: Path,
    mode: str,
    read: Callable[[str], AbstractContextManager[Reader]],
) -> tuple[str, int, int]:
    """Lose two of four records that the client has read.

    Return what it says then, the end of the records that are left, and that of all of them.
    """
    topic, sink = create_topic(broker.address, offset_mode=mode), producer(broker.address)
    with read(topic) as lines:
        *_, ended = send(sink, topic, [Record(b"k", b"a"), Record(b"k", b"b")])
        assert [next(lines), next(lines)] == ["a", "b"]
        redis_on_disk.copy(folder / "data")
        *_, last = send(sink, topic, [Record(b"k", b"c"), Record(b"k", b"d")])
        assert [next(lines), next(lines)] == ["c", "d"]
        redis_on_disk.start_with(folder / "data")
        said = next(lines)
        assert until(lambda: "records lost" in broker.log)
        return said, ended + 1, last + 1


@modes
def test_librdkafka_reports_a_truncated_log(
    restarting: Broker, redis_on_disk: OwnRedis, tmp_path: Path, mode: str
) -> None:
    @contextmanager
    def read(topic: str) -> Iterator[Reader]:
        with closing(consumer(restarting.address, auto_offset_reset="error")) as source:
            source.assign([TopicPartition(topic, 0, 0)])

            def lines() -> Reader:
                while True:
                    message = source.poll(1)
                    error = message and message.error()
                    if error and error.code() == KafkaError._AUTO_OFFSET_RESET:
                        yield str(error)
                    elif message and not error:
                        yield message.value().decode()

            yield lines()

    said, ended, position = lose(restarting, redis_on_disk, tmp_path, mode, read)
    assert "log truncation" in said
    assert f"at offset {position} " in said and f"end offset is {ended} " in said


@modes
@pytest.mark.parametrize(
    "client",
    [
        pytest.param("Java", marks=pytest.mark.java),
        pytest.param("franz-go", marks=pytest.mark.interop),
        "kafka-python",
    ],
)
def test_a_client_reports_the_loss(
    restarting: Broker,
    redis_on_disk: OwnRedis,
    tmp_path: Path,
    build: Build,
    client: str,
    mode: str,
) -> None:
    """Check kafka-python's errors: an empty fetch at the log's end makes it forget its epoch."""

    def read(topic: str) -> AbstractContextManager[Reader]:
        return process(*lost_programs.words(client, build), restarting.address, topic)

    said, ended, position = lose(restarting, redis_on_disk, tmp_path, mode, read)
    if client == "kafka-python":
        assert f": {position}}}" in said or f"(offset={ended}," in said
    else:
        assert said == f"lost {position} {ended}"


CONNECT = """
bootstrap.servers={target}
offset.storage.file.filename={folder}/offsets
listeners=http://127.0.0.1:0
key.converter=org.apache.kafka.connect.converters.ByteArrayConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
"""
SINK = """
name=sink
connector.class=org.apache.kafka.connect.file.FileStreamSinkConnector
file={folder}/sink
topics={topics}
consumer.override.bootstrap.servers={source}
"""
MIRROR = """
name=mirror
connector.class=org.apache.kafka.connect.mirror.MirrorSourceConnector
source.cluster.alias=source
target.cluster.alias=target
source.cluster.bootstrap.servers={source}
target.cluster.bootstrap.servers={target}
topics={topics}
replication.factor=1
offset-syncs.topic.replication.factor=1
value.converter=org.apache.kafka.connect.converters.ByteArrayConverter
"""


@pytest.mark.java
@pytest.mark.slow
def test_connect_and_mirrormaker_continue_after_a_loss(
    restarting: Broker, redis_on_disk: OwnRedis, build: Build, tmp_path: Path
) -> None:
    """Check a sink and a mirror at their defaults: each has every record once."""
    with Broker(tmp_path / "target") as target:
        topics = [create_topic(restarting.address, offset_mode=mode) for mode in ("dense", "time")]
        places = {
            "folder": tmp_path,
            "topics": ",".join(topics),
            "source": restarting.address,
            "target": target.address,
        }
        files = [tmp_path / name for name in ("worker", "sink.properties", "mirror.properties")]
        for path, text in zip(files, (CONNECT, SINK, MIRROR), strict=True):
            path.write_text(text.format(**places))
        sink, values = producer(restarting.address), list[str]()

        def add(*new: str) -> None:
            """Produce records, and wait until both have them."""
            for topic in topics:
                send(sink, topic, [Record(b"k", f"{topic} {value}".encode()) for value in new])
                values.extend(f"{topic} {value}" for value in new)
            eventually(lambda: sorted(in_file()) == sorted(values))
            for topic in topics:
                expected = [value for value in values if value.startswith(topic)]
                eventually(lambda topic=topic, expected=expected: mirrored(topic) == expected)

        def in_file() -> list[str]:
            path = tmp_path / "sink"
            return path.read_text().split("\n")[:-1] if path.exists() else []

        def mirrored(topic: str) -> list[str]:
            found = consumer(target.address)
            found.assign([TopicPartition(f"source.{topic}", 0, 0)])
            with closing(found):
                return [m.value().decode() for m in found.consume(100, 1) if not m.error()]

        main = "org.apache.kafka.connect.cli.ConnectStandalone"
        with prepared(build, HERE / "connect").start(main, *map(str, files)) as worker:
            try:
                add("a", "b")
                redis_on_disk.copy(tmp_path / "data")
                add("c", "d")
                redis_on_disk.start_with(tmp_path / "data")
                add("e", "f")
            finally:
                worker.kill()
