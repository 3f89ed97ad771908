"""Check that each record has its effect once, over kill -9 and pauses of consumers and their Redis.

KORVET_SEEDS is the number of seeds; each has another order of kills.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from time import sleep

import pytest
import redis

from korvet import Consumer, Korvet, KorvetError, Record, StoredRecord, StoreError
from korvet.scripts import inlined
from tests.interop.librdkafka import eventually
from tests.support.redis_servers import OwnRedis

pytestmark = pytest.mark.slow

SEEDS = int(os.environ.get("KORVET_SEEDS", "1"))
DEATHS, RECORDS, TIMEOUT_S, PAUSE_S = 16, 60, 0.3, 2.5
VICTIMS = ("consumer", "Redis", "paused consumer", "paused Redis")
SETTINGS = {
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.session.timeout.ms": "1500",
    "group.consumer.min.session.timeout.ms": "1500",
}


COUNT = f"""{inlined.library()}
korvet.commit({{ KEYS[1], KEYS[2], KEYS[3] }}, {{ unpack(ARGV, 2) }})
redis.call("HINCRBY", KEYS[4], ARGV[1], 1)
redis.call("INCR", KEYS[5])
"""


def in_multi(consumer: Consumer, client: redis.Redis, record: StoredRecord) -> None:
    """Count a record in MULTI, guarded by WATCH."""
    with client.pipeline() as pipe:
        consumer.check(pipe)
        pipe.multi()
        pipe.hincrby("seen", str(record.value), 1)
        pipe.incr("count")
        consumer.commit_with(pipe)
        pipe.execute()


def in_script(consumer: Consumer, client: redis.Redis, record: StoredRecord) -> None:
    """Count a record in a script."""
    with consumer.commit_args() as (keys, args):
        client.eval(COUNT, 5, *keys, "seen", "count", str(record.value), *args)


Step = Callable[[Consumer, redis.Redis, StoredRecord], None]
STEPS: dict[str, Step] = {"MULTI": in_multi, "script": in_script}


def consume(url: str, step: str) -> None:
    """Count records until the process is killed."""
    client = redis.Redis.from_url(url, socket_timeout=TIMEOUT_S)
    while True:
        try:
            consumer = Korvet(client, settings=SETTINGS).consumer("totals", ["orders"])
            break
        except StoreError:
            sleep(0.05)
    while True:
        try:
            for record in consumer:
                STEPS[step](consumer, client, record)
        except (StoreError, KorvetError, redis.RedisError):
            sleep(0.01)


class Consumers:
    """The processes of two consumers, each started again after its kill."""

    def __init__(self, url: str, step: str) -> None:
        self._words = [sys.executable, "-m", "tests.library.test_consuming_kills", url, step]
        self._running = [self._start(), self._start()]

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._words, cwd=Path(__file__).parents[2])

    def kill(self, number: int) -> None:
        self._running[number].kill()
        self._running[number].wait()
        self._running[number] = self._start()

    def pause(self, number: int) -> None:
        """Stop a consumer, perhaps in a step, until another has its partitions."""
        self._running[number].send_signal(signal.SIGSTOP)
        sleep(PAUSE_S)
        self._running[number].send_signal(signal.SIGCONT)

    def close(self) -> None:
        for process in self._running:
            assert process.poll() is None, "a consumer ended by itself"
            process.kill()
            process.wait()


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("step", STEPS)
def test_each_record_has_its_effect_once(redis_on_disk: OwnRedis, step: str, seed: int) -> None:
    random, total = Random(seed), 0
    client = redis_on_disk.client()
    client.config_set("appendfsync", "always")
    log = Korvet(client)
    # In time mode each log has a marker after a restart, which counts as lag.
    log.create_topic("orders", 4, configs={"offset.mode": "dense"})
    consumers = Consumers(redis_on_disk.url, step)
    try:
        for _ in range(DEATHS):
            log.produce("orders", [Record(b"%d" % (total + n)) for n in range(RECORDS)])
            log.produce("orders", [Record(b"%d" % (total + RECORDS + n)) for n in range(RECORDS)])
            total += 2 * RECORDS
            seen = total - random.randrange(RECORDS)
            eventually(lambda limit=seen: client.hlen("seen") >= limit)
            victim = random.choice(VICTIMS)
            if victim == "paused consumer":
                consumers.pause(random.randrange(2))
            elif victim == "paused Redis":
                # Steps that have timed out are in its sockets, and it executes them late.
                redis_on_disk.signal(signal.SIGSTOP)
                sleep(2 * TIMEOUT_S)
                redis_on_disk.signal(signal.SIGCONT)
            elif victim == "Redis":
                redis_on_disk.end()
                redis_on_disk.start()
                client.config_set("appendfsync", "always")
            else:
                consumers.kill(random.randrange(2))
        eventually(lambda: client.hlen("seen") == total)
        consumers.close()
        values = client.hvals("seen")
        assert (set(values), client.get("count")) == ({b"1"}, b"%d" % total)
        assert sum(row.lag for row in log.committed("totals")) == 0
    finally:
        for process in consumers._running:
            process.kill()
        log.close()
        client.close()


if __name__ == "__main__":
    consume(*sys.argv[1:])
