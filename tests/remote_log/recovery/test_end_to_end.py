"""Check restore with real clients: produce, copy, lose Redis, restore from the bucket, consume."""

import hashlib
import json
import signal
import sys
from pathlib import Path
from shutil import copytree
from subprocess import PIPE, Popen
from time import monotonic
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from korvet.cli import run
from korvet.embedded_redis.server import RedisServer
from korvet.scripts.keys import Keys
from korvet.store.sync_store import SyncStore
from korvet.testing import Broker
from tests.interop.librdkafka import eventually

COUNT, READ = 300, 100
VALUES = [b"%06d" % n * 50 for n in range(COUNT)]


def settings(folder: Path) -> dict[str, str]:
    return {
        "remote.log.storage.system.enable": "true",
        "remote.storage.url": f"file://{folder}",
        "remote.log.manager.task.interval.ms": "50",
        "remote.metadata.snapshot.interval.ms": "1000",
        "offset.mode": "dense",
    }


def consumer(servers: str) -> Any:
    return Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "readers",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "check.crcs": True,
        }
    )


def digest(values: list[bytes]) -> str:
    return hashlib.sha256(b"".join(values)).hexdigest()


def read(reader: Any, count: int) -> list[Any]:
    found: list[Any] = []
    end = monotonic() + 15
    while len(found) < count and monotonic() < end:
        message = reader.poll(0.2)
        if message is not None:
            assert message.error() is None, message.error()
            found.append(message)
    return found


def produce(folder: Path, values: list[bytes]) -> None:
    """Produce to a broker, commit READ records, wait for copy and snapshot, lose Redis."""
    with Broker(settings=settings(folder)) as broker:
        servers = broker.bootstrap_servers
        configs = {"remote.storage.enable": "true", "segment.ms": "1"}
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic("t", 1, 1, config=configs)])["t"].result(10)
        producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})
        for value in values:
            producer.produce("t", value)
        assert producer.flush(10) == 0
        reader = consumer(servers)
        reader.assign([TopicPartition("t", 0, 0)])
        assert len(read(reader, READ)) == READ
        reader.commit(offsets=[TopicPartition("t", 0, READ)], asynchronous=False)
        reader.close()
        key = Keys().partition("t", 0).log
        with SyncStore.connect(broker.redis_url) as store:
            eventually(lambda: store.command("HGET", key, "tiered") == b"%d" % COUNT)
        eventually(
            lambda: any(b'"readers"' in each.read_bytes() for each in folder.rglob("*.snapshot"))
        )


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The remote store of a cluster that lost its Redis."""
    folder = tmp_path_factory.mktemp("bucket")
    produce(folder, VALUES)
    return folder


def test_a_group_continues_after_a_restore_from_the_bucket_alone(
    bucket: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "bucket"
    copytree(bucket, folder)
    with RedisServer.launch(str(tmp_path / "redis")) as server:
        command = ["restore", "--from", f"file://{folder}", "--redis", server.url]
        assert run([*command, "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
        assert (report["records"], report["groups"], report["lost"]) == (COUNT, 1, [])
        assert run(command) == 2
        assert "stop its brokers" in capsys.readouterr().err
        with Broker(redis=server.url, settings=settings(folder)) as broker:
            reader = consumer(broker.bootstrap_servers)
            reader.subscribe(["t"])
            found = read(reader, COUNT - READ)
            assert found[0].offset() == READ
            assert digest([each.value() for each in found]) == digest(VALUES[READ:])
            producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
            producer.produce("t", b"after")
            assert producer.flush(10) == 0
            after = read(reader, 1)[0]
            assert after.value() == b"after" and after.offset() >= COUNT
            reader.close()


def test_a_read_only_broker_serves_the_bucket_and_refuses_writes(bucket: Path) -> None:
    objects = {path: path.stat().st_mtime_ns for path in bucket.rglob("*") if path.is_file()}
    command = [sys.executable, "-m", "korvet", "serve", "--from", f"file://{bucket}"]
    command += ["--listen", "127.0.0.1:0", "--set", "group.initial.rebalance.delay.ms=0"]
    with Popen(command, stdout=PIPE, text=True) as process:
        assert process.stdout is not None
        servers = process.stdout.readline().removeprefix("listening on ").strip()
        try:
            reader = consumer(servers)
            assert reader.committed([TopicPartition("t", 0)])[0].offset == READ
            reader.subscribe(["t"])
            found = read(reader, COUNT - READ)
            assert digest([each.value() for each in found]) == digest(VALUES[READ:])
            assert reader.get_watermark_offsets(TopicPartition("t", 0)) == (0, COUNT)
            reader.commit(asynchronous=False)
            reader.close()
            errors: list[Any] = []
            producer = Producer({"bootstrap.servers": servers})
            producer.produce("t", b"no", on_delivery=lambda error, _: errors.append(error))
            assert producer.flush(10) == 0 and [each.name() for each in errors] == [
                "POLICY_VIOLATION"
            ]
            admin = AdminClient({"bootstrap.servers": servers})
            with pytest.raises(KafkaException, match="read-only"):
                admin.create_topics([NewTopic("u", 1, 1)])["u"].result(10)
            assert set(admin.list_topics().topics) == {"__consumer_offsets", "t"}
        finally:
            process.send_signal(signal.SIGTERM)
    now = {path: path.stat().st_mtime_ns for path in bucket.rglob("*") if path.is_file()}
    assert now == objects
