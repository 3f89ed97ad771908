"""Check tables with a real producer: HGET has the value when the producer has the answer."""

import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
import redis
from confluent_kafka import KafkaError, KafkaException, Producer

from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic
from tests.interop.librdkafka import eventually, producer

pytestmark = pytest.mark.korvet_only

CONFIGS = {"table_enable": "true", "storage_format": "record"}


def redis_of(broker: Broker) -> redis.Redis:
    """Return a client of the broker's Redis."""
    return redis.Redis(unix_socket_path=str(broker.folder / "data" / "redis.sock"))


def hget(broker: Broker, topic: str, key: bytes, number: int = 0) -> Any:
    """Read a table as any client of Redis does."""
    with redis_of(broker) as client:
        return client.hget(f"{{korvet:{topic}:{number}}}:table", key)


def send(sink: Producer, topic: str, *pairs: tuple[bytes, bytes | None]) -> None:
    for key, value in pairs:
        sink.produce(topic, value, key, partition=0)
    assert sink.flush(30) == 0


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_hget_has_the_value_after_the_acknowledgement(default_broker: Broker, codec: str) -> None:
    topic = create_topic(default_broker.address, **CONFIGS)
    sink = producer(default_broker.address, compression_type=codec, linger_ms=5)
    large = b"x" * 20_000
    for n in range(20):
        send(sink, topic, (b"cups", b"%d" % n), (b"forks", large))
        assert hget(default_broker, topic, b"cups") == b"%d" % n
    assert hget(default_broker, topic, b"forks") == large
    send(sink, topic, (b"cups", None))
    assert hget(default_broker, topic, b"cups") is None


def test_a_transaction_is_in_the_table_after_its_commit(default_broker: Broker) -> None:
    topic = create_topic(default_broker.address, **CONFIGS)
    sink = producer(default_broker.address, transactional_id=f"{topic}-x")
    sink.init_transactions(30)
    for n in range(10):
        sink.begin_transaction()
        send(sink, topic, *((b"%d" % k, b"%d" % n) for k in range(1000)))
        before = None if n == 0 else b"%d" % (n - 1 - (n - 1) % 2)
        assert hget(default_broker, topic, b"7") == before
        if n % 2:
            sink.abort_transaction(30)
        else:
            sink.commit_transaction(30)
        assert hget(default_broker, topic, b"7") == b"%d" % (n - n % 2)


def test_an_entry_of_xadd_is_in_the_table_soon(default_broker: Broker) -> None:
    topic = create_topic(default_broker.address, **CONFIGS)
    with redis_of(default_broker) as client:
        client.xadd(f"korvet:{topic}:0", {"key": "cups", "value": "3"})
    eventually(lambda: hget(default_broker, topic, b"cups") == b"3")


SEEDS = int(os.environ.get("KORVET_SEEDS", "1"))
DEATHS = 3


def write_until(stop: threading.Event, address: str, topic: str, seed: int) -> None:
    """Produce records, tombstones and transactions, whatever happens to the broker."""
    random = Random(seed)
    plain = producer(address, enable_idempotence=True, linger_ms=2)
    while not stop.is_set():
        sink = producer(address, transactional_id=f"{topic}-{seed}", linger_ms=2)
        with suppress(KafkaException):
            sink.init_transactions(30)
            while not stop.is_set():
                sink.begin_transaction()
                for _ in range(random.randint(1, 20)):
                    key, value = f"k{random.randrange(200)}", random.choice([None, "t", "u"])
                    sink.produce(topic, value and value * random.randint(1, 9), key)
                    plain.produce(topic, f"{random.randrange(10**6)}", f"k{random.randrange(200)}")
                plain.poll(0)
                if random.random() < 0.3:
                    sink.abort_transaction(30)
                else:
                    sink.commit_transaction(30)
    plain.flush(30)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_table_equals_its_log_after_kills(tmp_path: Path, seed: int) -> None:
    """After each death of the broker, or of it and Redis, `tables verify` compares the two."""
    random, stop = Random(seed), threading.Event()
    broker = Broker(tmp_path, {"offset.mode": random.choice(["time", "dense"])})
    broker.start()
    topic = create_topic(broker.address, 2, **CONFIGS)
    threads = [
        threading.Thread(target=write_until, args=(stop, broker.address, topic, n))
        for n in range(2)
    ]
    verify = [sys.executable, "-m", "korvet", "tables", "verify", topic, "--no-header"]
    verify += ["--data-dir", str(broker.folder / "data")]
    try:
        for thread in threads:
            thread.start()
        for _ in range(DEATHS):
            stop.wait(random.uniform(0.5, 2))
            random.choice([broker.kill, broker.kill_everything])()
            broker.start()
            checked = subprocess.run(verify, capture_output=True, text=True, check=False)
            assert checked.returncode == 0, checked.stdout + checked.stderr
        stop.set()
        for thread in threads:
            thread.join()
        checked = subprocess.run(verify, capture_output=True, text=True, check=True)
        rows = [list(map(int, line.split())) for line in checked.stdout.splitlines()]
        assert all(equal > 50 and gone == 0 for _, equal, _, gone in rows)
    finally:
        stop.set()
        broker.close()


def test_a_producers_record_expects_the_offset_of_its_key(default_broker: Broker) -> None:
    topic = create_topic(default_broker.address, **CONFIGS, table_offsets_enable="true")
    sink, answers = producer(default_broker.address), []

    def delivered(error: KafkaError | None, message: Any) -> None:
        answers.append((error and error.name(), message.offset()))

    def put(expected: int) -> Any:
        sink.produce(
            topic,
            b"3",
            b"cups",
            partition=0,
            headers={"korvet-expected-offset": b"%d" % expected},
            on_delivery=delivered,
        )
        assert sink.flush(30) == 0
        return answers[-1]

    error, first = put(-1)
    assert error is None
    assert put(-1)[0] == "INVALID_UPDATE_VERSION"
    error, second = put(first)
    assert error is None and second > first
