"""A broker over the APIs of S3, Azure and Google: copy, drop, read, cache, delete, restore."""

import asyncio
import hashlib
import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from korvet.cli import run
from korvet.embedded_redis.socket import socket_path
from korvet.remote_log.recovery.restore import RestoreRefused, load_snapshot
from korvet.remote_log.store import SegmentStore
from korvet.scripts.keys import Keys
from korvet.store.sync_store import SyncStore
from tests.interop import kafka_python, librdkafka
from tests.interop.brokers import EXTERNAL, Broker
from tests.support import object_stores
from tests.support.object_stores import ObjectStore
from tests.support.programs import Build

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(bool(EXTERNAL), reason="of Korvet's tiered storage"),
]
COUNT, VALUE_BYTES = 1500, 4000
SEGMENT_BYTES = 1 << 20
SETTINGS = {
    "remote.log.manager.task.interval.ms": "100",
    "remote.metadata.snapshot.interval.ms": "1000",
    "log.remote.storage.enable": "true",
}
CONFIGS = {
    "offset.mode": "dense",
    "segment.bytes": str(SEGMENT_BYTES),
    "local.retention.bytes": "1",
    "file.delete.delay.ms": "0",
}


def until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def values() -> list[bytes]:
    """Return the same values at each call; they do not compress."""
    source = random.Random(29)
    return [source.randbytes(VALUE_BYTES) for _ in range(COUNT)]


def digest(found: list[bytes]) -> str:
    return hashlib.sha256(b"".join(found)).hexdigest()


def read(address: str, topic: str, offset: int = 0, count: int = COUNT) -> list[bytes]:
    """Return the values from an offset to below `count`, by librdkafka."""
    consumer = librdkafka.consumer(address, check_crcs=True)
    consumer.assign([TopicPartition(topic, 0, offset)])
    found: list[bytes] = []
    end = time.monotonic() + 60
    while len(found) < count - offset and time.monotonic() < end:
        for message in consumer.consume(min(500, count - offset - len(found)), 0.5):
            assert message.error() is None, message.error()
            value = message.value()
            assert value is not None and message.offset() == offset + len(found)
            found.append(value)
    consumer.close()
    return found


@pytest.fixture(scope="module", params=["s3", "azure", "google"])
def store(request: pytest.FixtureRequest, build: Build) -> Iterator[ObjectStore]:
    """An empty bucket; its address and credentials are in the environment."""
    with pytest.MonkeyPatch.context() as patch:
        serve = {
            "s3": object_stores.s3,
            "azure": lambda: object_stores.azure(build),
            "google": object_stores.google,
        }[request.param]
        with serve() as found:
            for name, value in found.environment.items():
                patch.setenv(name, value)
            yield found


class Filled:
    """A broker with two topics, of which Redis has the end only."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def redis(self) -> SyncStore:
        return SyncStore.connect(f"unix://{socket_path(self.broker.folder / 'data')}")

    def offset(self, topic: str, field: str) -> int:
        with self.redis() as redis:
            found = redis.command("HGET", Keys().partition(topic, 0).log, field)
        return int(found or 0)

    def segments(self, topic: str) -> int:
        with self.redis() as redis:
            return int(redis.command("ZCARD", Keys().partition(topic, 0).segments))


def topics_in_snapshot(store: ObjectStore) -> set[str]:
    try:
        snapshot = asyncio.run(load_snapshot(SegmentStore(store.url), None))
    except RestoreRefused:
        return set()
    return set(snapshot.topics)


@pytest.fixture(scope="module")
def filled(store: ObjectStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    settings = {**SETTINGS, "remote.storage.url": store.url}
    with Broker(tmp_path_factory.mktemp("broker"), settings) as broker:
        admin = AdminClient({"bootstrap.servers": broker.address})
        for form in ("record", "batch"):
            configs = {**CONFIGS, "storage.format": form}
            admin.create_topics([NewTopic(form, 1, 1, config=configs)])[form].result(30)
        producer = librdkafka.producer(broker.address, batch_size=100_000, linger_ms=20)
        for value in values():
            for form in ("record", "batch"):
                producer.produce(form, value, partition=0)
            producer.poll(0)
        assert producer.flush(60) == 0
        found = Filled(broker)
        for form in ("record", "batch"):
            until(lambda form=form: found.offset(form, "local_start") > COUNT // 2)
        until(lambda: topics_in_snapshot(store) == {"record", "batch"})
        yield found
    assert "Traceback" not in broker.log


@pytest.mark.parametrize("form", ["record", "batch"])
def test_clients_read_everything_and_again_from_the_local_disk(filled: Filled, form: str) -> None:
    address = filled.broker.address
    assert digest(read(address, form)) == digest(values())
    with kafka_python.consumer(address, group_id=None) as consumer:
        place = kafka_python.TopicPartition(form, 0)
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        found: list[bytes] = []
        end = time.monotonic() + 60
        while len(found) < COUNT and time.monotonic() < end:
            found += [row.value for rows in consumer.poll(500).values() for row in rows]
    assert digest(found) == digest(values())
    parts = list((filled.broker.folder / "data" / "chunk-cache").rglob("*.part"))
    assert sum(path.stat().st_size for path in parts) > COUNT * VALUE_BYTES // 2


def test_a_restarted_broker_reads_from_the_local_disk_while_the_store_is_away(
    filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    for form in ("record", "batch"):
        read(filled.broker.address, form)
    filled.broker.stop()
    with monkeypatch.context() as away:
        for name in ("AWS_ENDPOINT_URL", "AZURE_STORAGE_ENDPOINT"):
            away.setenv(name, "http://127.0.0.1:9")
        away.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", _nowhere())
        filled.broker.start()
        for form in ("record", "batch"):
            assert digest(read(filled.broker.address, form)) == digest(values())
        filled.broker.stop()
    filled.broker.start()


def _nowhere() -> str:
    key = {"gcs_base_url": "http://127.0.0.1:9", "disable_oauth": True, "client_email": ""}
    return json.dumps(key | {"private_key": "", "private_key_id": ""})


def test_the_bucket_alone_rebuilds_the_cluster(
    filled: Filled, store: ObjectStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copied = filled.offset("batch", "tiered")
    data = tmp_path / "broker" / "data"
    assert run(["restore", "--from", store.url, "--data-dir", str(data), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["topics"] == 2 and report["segments"] >= 2 * copied * VALUE_BYTES // 2_000_000
    assert {row["reason"] for row in report["lost"]} <= {"not copied"}
    # Without the first broker's lease: this one only reads.
    settings = {"remote.storage.url": store.url, "remote.log.storage.system.enable": "true"}
    with Broker(tmp_path / "broker", settings) as broker:
        found = read(broker.address, "batch", count=copied)
    assert digest(found) == digest(values()[:copied])


def test_a_read_only_broker_serves_the_bucket(filled: Filled, store: ObjectStore) -> None:
    copied = filled.offset("record", "tiered")
    words = [sys.executable, "-m", "korvet", "serve", "--from", store.url]
    with subprocess.Popen(
        [*words, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline().removeprefix("listening on ").strip()
        try:
            found = read(address, "record", count=copied)
        finally:
            process.send_signal(signal.SIGTERM)
    assert digest(found) == digest(values()[:copied]) and process.returncode == 0


def test_deleted_records_take_their_objects_along(filled: Filled, store: ObjectStore) -> None:
    """The last test: it removes the records."""
    admin = AdminClient({"bootstrap.servers": filled.broker.address})
    before = filled.segments("batch")
    offset = filled.offset("batch", "local_start")
    place = TopicPartition("batch", 0, offset)
    assert admin.delete_records([place])[place].result(30).low_watermark == offset
    until(lambda: filled.segments("batch") < before // 2)
    assert digest(read(filled.broker.address, "batch", offset)) == digest(values()[offset:])
    assert digest(read(filled.broker.address, "record")) == digest(values())
