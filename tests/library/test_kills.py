"""Check steps of the log over kill -9 and pauses of applications, their Redis and a broker.

Publishers: the application's keys and the topic agree record by record. Consumers: each record has
its effect once, and what they publish in the same step is there once. KORVET_SEEDS is the number
of seeds; each has another order of kills.
"""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from random import Random
from time import sleep
from typing import Any
from uuid import uuid4

import pytest
import redis

from korvet import (
    AcquiredRecord,
    Consumer,
    Korvet,
    KorvetError,
    Queue,
    Record,
    ShareConsumer,
    StoredRecord,
    StoreError,
)
from korvet.library.batches import partition_of
from korvet.scripts import inlined
from korvet.scripts.keys import Keys
from korvet.store.redis_py import run_inline
from tests.interop.brokers import Broker
from tests.interop.librdkafka import eventually, read
from tests.support.redis_servers import OwnRedis

pytestmark = pytest.mark.slow

SEEDS = int(os.environ.get("KORVET_SEEDS", "1"))
DEATHS = 4 if SEEDS == 1 else 8
RECORDS, TIMEOUT_S, PAUSE_S, STEP_S = 60, 0.3, 2.5, 0.002
PARTITIONS = 4
VICTIMS = ("application", "Redis", "paused application", "paused Redis", "broker")
SETTINGS = {
    f"group.{kind}.{name}": value
    for kind in ("consumer", "share")
    for name, value in (
        ("heartbeat.interval.ms", "100"),
        ("session.timeout.ms", "1500"),
        ("min.session.timeout.ms", "1500"),
    )
} | {
    "group.share.assignment.interval.ms": "0",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.max.delivery.count.limit": "25",
}
SHARE = {
    "share.auto.offset.reset": "earliest",
    "share.record.lock.duration.ms": "1500",
    "share.delivery.count.limit": "25",
}
LOST = (StoreError, KorvetError, redis.RedisError)

COUNT = f"""{inlined.library()}
korvet.VERB({{ KEYS[1], KEYS[2], KEYS[3] }}, {{ unpack(ARGV, 2) }})
redis.call("HINCRBY", KEYS[4], ARGV[1], 1)
redis.call("INCR", KEYS[5])
"""
COMMIT, ACKNOWLEDGE = (COUNT.replace("VERB", verb) for verb in ("commit", "acknowledge"))
TAKE = f"""{inlined.library()}
korvet.append(KEYS, "", {{ {{ value = ARGV[1] }} }})
redis.call("HINCRBY", KEYS[6], ARGV[1], 1)
"""


def publish_in_multi(log: Korvet, client: redis.Redis, value: str) -> None:
    """Publish by the library, in one step with a count."""
    with client.pipeline() as pipe:
        pipe.hincrby("seen", value, 1)
        log.publish(pipe, "orders", Record(value.encode()))
        pipe.execute()


def publish_in_script(log: Korvet, client: redis.Redis, value: str) -> None:
    """Publish in a script of the application."""
    keys = Keys().partition("orders", partition_of(value.encode(), PARTITIONS)).appends
    client.eval(TAKE, 6, *keys, "seen", value)


def publish_by_function(log: Korvet, client: redis.Redis, value: str) -> None:
    """Publish by the function that the application calls in MULTI."""
    keys = Keys().partition("orders", partition_of(value.encode(), PARTITIONS)).appends
    with client.pipeline() as pipe:
        pipe.fcall("korvet_append", 5, *keys, "", "0", 2, "value", value)
        pipe.hincrby("seen", value, 1)
        pipe.execute()


def consume_in_multi(consumer: Consumer, client: redis.Redis, record: StoredRecord) -> None:
    """Count a record in MULTI, guarded by WATCH."""
    with client.pipeline() as pipe:
        consumer.check(pipe)
        pipe.multi()
        pipe.hincrby("seen", str(record.value), 1)
        pipe.incr("count")
        consumer.commit_with(pipe)
        pipe.execute()


def consume_in_script(consumer: Consumer, client: redis.Redis, record: StoredRecord) -> None:
    """Count a record in a script."""
    with consumer.commit_args() as (keys, args):
        client.eval(COMMIT, 5, *keys, "seen", "count", str(record.value), *args)


def consume_by_function(consumer: Consumer, client: redis.Redis, record: StoredRecord) -> None:
    """Count a record in MULTI with the function: WATCH guards the other commands."""
    with client.pipeline() as pipe:
        consumer.check(pipe)
        pipe.multi()
        with consumer.commit_args() as (keys, args):
            pipe.fcall("korvet_commit", 3, *keys, *args)
            pipe.hincrby("seen", str(record.value), 1)
            pipe.incr("count")
            pipe.execute()


def consume_and_publish(consumer: Consumer, client: redis.Redis, record: StoredRecord) -> None:
    """Count a record and publish another in MULTI."""
    with client.pipeline() as pipe:
        consumer.check(pipe)
        pipe.multi()
        pipe.hincrby("seen", str(record.value), 1)
        pipe.incr("count")
        Korvet(client).publish(pipe, "invoices", Record(record.value))
        consumer.commit_with(pipe)
        pipe.execute()


def share_in_multi(consumer: ShareConsumer, client: redis.Redis, record: StoredRecord) -> None:
    """Count an acquired record in MULTI, guarded by WATCH."""
    with client.pipeline() as pipe:
        consumer.check(pipe, record)
        pipe.multi()
        pipe.hincrby("seen", str(record.value), 1)
        pipe.incr("count")
        consumer.acknowledge_with(pipe, record)
        pipe.execute()


def share_in_script(consumer: ShareConsumer, client: redis.Redis, record: StoredRecord) -> None:
    """Count an acquired record in a script."""
    with consumer.acknowledge_args(record) as (keys, args):
        client.eval(ACKNOWLEDGE, 5, *keys, "seen", "count", str(record.value), *args)


def work(client: redis.Redis) -> None:
    """Count jobs as the worker of a queue."""

    def count(job: AcquiredRecord, pipe: Any) -> None:
        pipe.hincrby("seen", str(job.value), 1)
        pipe.incr("count")

    while True:
        try:
            Queue(Korvet(client, settings=SETTINGS), "orders", group="totals").work(
                count, client=client
            )
        except LOST:
            sleep(0.01)


PUBLISHING: dict[str, Callable[[Korvet, redis.Redis, str], None]] = {
    "publish in MULTI": publish_in_multi,
    "publish in MULTI, with functions": publish_in_multi,
    "publish in a script": publish_in_script,
    "publish by function": publish_by_function,
}
CONSUMING: dict[str, Callable[..., None]] = {
    "consume in MULTI": consume_in_multi,
    "consume in a script": consume_in_script,
    "consume by function": consume_by_function,
    "consume and publish, with functions": consume_and_publish,
    "share in MULTI": share_in_multi,
    "share in MULTI, with functions": share_in_multi,
    "share in a script": share_in_script,
    "work on jobs": work,
}


def publish(client: redis.Redis, step: str) -> None:
    """Publish numbered records until the process is killed; what failed is not repeated."""
    log, name = Korvet(client), uuid4().hex
    for number in count():
        sleep(STEP_S)
        try:
            PUBLISHING[step](log, client, f"{name}-{number}")
        except LOST:
            sleep(0.01)


def consume(client: redis.Redis, step: str) -> None:
    """Count records until the process is killed."""
    if step == "work on jobs":
        work(client)
    while True:
        try:
            log = Korvet(client, settings=SETTINGS)
            join = log.share_consumer if step.startswith("share") else log.consumer
            consumer: Any = join("totals", ["orders"])
            break
        except LOST:
            sleep(0.05)
    while True:
        try:
            for record in consumer:
                CONSUMING[step](consumer, client, record)
        except LOST:
            sleep(0.01)


class World:
    """A Redis on disk, a broker, and two processes of an application."""

    def __init__(self, folder: Path, redis_on_disk: OwnRedis, step: str) -> None:
        self.redis = redis_on_disk
        self.client = redis_on_disk.client()
        self.client.config_set("appendfsync", "always")
        self.broker = Broker(folder, options=("--redis", redis_on_disk.url))
        self.broker.start()
        if "function" in step:
            for text in inlined.texts().values():
                self.client.function_load(text)
        self._words = [sys.executable, "-m", "tests.library.test_kills", redis_on_disk.url, step]
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        self.running = [self._process(), self._process()]

    def _process(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._words, cwd=Path(__file__).parents[2])

    def harm(self, victim: str, number: int) -> None:
        """Kill or pause a process, and return when it runs again."""
        application = self.running[number]
        if victim == "paused application":
            # Perhaps in a step, until another has its partitions.
            application.send_signal(signal.SIGSTOP)
            sleep(PAUSE_S)
            application.send_signal(signal.SIGCONT)
        elif victim == "paused Redis":
            # Steps that have timed out are in its sockets, and it executes them late.
            self.redis.signal(signal.SIGSTOP)
            sleep(2 * TIMEOUT_S)
            self.redis.signal(signal.SIGCONT)
        elif victim == "Redis":
            self.redis.end()
            self.redis.start()
            self.client.config_set("appendfsync", "always")
        elif victim == "broker":
            self.broker.kill()
            self.broker.start()
        else:
            application.kill()
            application.wait()
            self.running[number] = self._process()

    def end(self) -> None:
        """Kill the application, which runs."""
        for process in self.running:
            assert process.poll() is None, "an application ended by itself"
            process.kill()
            process.wait()

    def close(self) -> None:
        for process in self.running:
            process.kill()
            process.wait()
        self.broker.kill()
        self.client.close()


@pytest.fixture
def world(
    request: pytest.FixtureRequest, tmp_path: Path, redis_on_disk: OwnRedis
) -> Iterator[World]:
    made = World(tmp_path / "broker", redis_on_disk, request.param)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("world", PUBLISHING, indirect=True)
def test_keys_and_topic_agree_record_by_record(world: World, seed: int) -> None:
    random, client = Random(seed), world.client
    with Korvet(client) as log:
        log.create_topic("orders", PARTITIONS, {"offset.mode": random.choice(["dense", "time"])})
        world.start()
        for _ in range(DEATHS):
            more = client.hlen("seen") + random.randrange(RECORDS)
            eventually(lambda least=more: client.hlen("seen") >= least)
            world.harm(random.choice(VICTIMS), random.randrange(2))
        world.end()
        stored = [list(log.records("orders", number)) for number in range(PARTITIONS)]
        seen = {key: int(times) for key, times in client.hgetall("seen").items()}
        values = [record.value for records in stored for record in records]
        assert Counter(values) == seen
        for number, records in enumerate(stored):
            address, size = world.broker.address, len(records)
            received = read(address, "orders", size, partition=number)
            assert [(each.offset(), each.value()) for each in received] == [
                (record.offset, record.value) for record in records
            ]


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("world", CONSUMING, indirect=True)
def test_each_record_has_its_effect_once(world: World, seed: int) -> None:
    random, total, client = Random(seed), 0, world.client
    with Korvet(client, settings=SETTINGS) as log:
        log.configure_group("totals", SHARE)
        # In time mode each log has a marker after a restart, which counts as lag.
        log.create_topic("orders", PARTITIONS, configs={"offset.mode": "dense"})
        log.create_topic("invoices", 1)
        world.start()
        for _ in range(DEATHS):
            for _ in range(2):
                log.produce("orders", [Record(b"%d" % (total + n)) for n in range(RECORDS)])
                total += RECORDS
            seen = total - random.randrange(RECORDS)
            eventually(lambda limit=seen: client.hlen("seen") >= limit)
            world.harm(random.choice(VICTIMS), random.randrange(2))
        eventually(lambda: client.hlen("seen") == total)
        world.end()
        values = client.hvals("seen")
        assert (set(values), client.get("count")) == ({b"1"}, b"%d" % total)
        assert sum(row.lag for row in log.committed("totals")) == 0
        assert accepted(log) in (0, total)
        invoices = sorted(str(record.value).encode() for record in log.records("invoices", 0))
        assert invoices in ([], sorted(client.hkeys("seen")))


def accepted(log: Korvet) -> int:
    """Return the records that the share group has accepted; it may have archived none."""
    topic_id = log.topic("orders").id
    calls = [
        log._async.keys.partition("orders", number, topic_id).share_describe(group="totals", most=0)
        for number in range(PARTITIONS)
    ]
    found = run_inline(log._async.store.run_many(calls))
    assert not any(state.archived for state in found)
    return sum(state.acknowledged for state in found)


if __name__ == "__main__":
    url, form = sys.argv[1:]
    run = publish if form in PUBLISHING else consume
    run(redis.Redis.from_url(url, socket_timeout=TIMEOUT_S), form)
