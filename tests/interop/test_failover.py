"""Check failovers of Redis, by Sentinel and in a cluster, under two brokers and a producer.

A replica has each acknowledged record (`acks.all.wait.replicas`), and each master has one replica.
So none may be lost, however busy the machine. After a failover a new master gets a replica.
"""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from redis.exceptions import ResponseError

from korvet.store.sentinel_watch import EVENTS
from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic
from tests.interop.librdkafka import eventually
from tests.interop.numbers import LONG, Numbers
from tests.store.cluster_topology import TestCluster, cluster
from tests.store.sentinel_topology import Watched, watching

pytestmark = [pytest.mark.korvet_only, pytest.mark.slow]

PARTITIONS = 4
FEW = 60


@contextmanager
def two_brokers(folder: Path, url: str) -> Iterator[str]:
    """Yield the addresses of two brokers. Neither may log a traceback."""
    settings = {"acks.all.wait.replicas": "1"}
    both = [
        Broker(folder / node, settings, ("--redis", url, "--node-id", node)) for node in ("1", "2")
    ]
    with ExitStack() as stack:
        for broker in both:
            stack.callback(broker.close)
        with ThreadPoolExecutor() as starting:
            list(starting.map(Broker.start, both))
        yield ",".join(broker.address for broker in both)
    for broker in both:
        assert "Traceback" not in broker.log, broker.log


def listeners(redis: Watched, guard: int) -> int:
    """Return the number of connections that subscribe to Sentinel's failover events."""
    rows = redis.text(guard, "CLIENT", "LIST").splitlines()
    return sum(" cmd=subscribe " in row and f" sub={len(EVENTS)} " in row for row in rows)


def scripts_run(redis: Watched, port: int) -> int:
    """Return the number of scripts that the server has run; only scripts write."""
    (row,) = re.findall(r"cmdstat_evalsha:calls=(\d+)", redis.text(port, "INFO", "commandstats"))
    return int(row)


def test_a_master_that_hands_over_and_lives_on_is_written_to_no_more(tmp_path: Path) -> None:
    with (
        watching(3, down_after_ms=60_000, lives_on=True) as redis,
        two_brokers(tmp_path, redis.url) as address,
    ):
        topic = create_topic(address, PARTITIONS, storage_format="batch")
        eventually(lambda: all(listeners(redis, guard) >= 4 for guard in redis.sentinels), LONG)
        numbers = Numbers(address, topic, PARTITIONS)
        numbers.reach(FEW)
        assert redis.ask(redis.sentinels[0], "SENTINEL", "FAILOVER", "themaster") == b"OK"
        eventually(lambda: redis.is_master(redis.replica), LONG)
        redis.ask(redis.spare, "REPLICAOF", "127.0.0.1", redis.replica)
        # Both brokers write to the new master now. The old one would accept writes.
        numbers.reach(FEW)
        before = scripts_run(redis, redis.master)
        numbers.reach(FEW)
        assert scripts_run(redis, redis.master) == before > 0
        assert redis.is_master(redis.master)
        numbers.finish()
        numbers.check(address)


def test_what_a_dead_master_has_acknowledged_is_at_its_replica(tmp_path: Path) -> None:
    with watching() as redis, two_brokers(tmp_path, redis.url) as address:
        topic = create_topic(address, PARTITIONS, storage_format="record")
        numbers = Numbers(address, topic, PARTITIONS)
        numbers.reach(FEW)
        redis.old.kill()
        eventually(lambda: redis.is_master(redis.replica), LONG)
        redis.ask(redis.spare, "REPLICAOF", "127.0.0.1", redis.replica)
        numbers.reach(FEW)
        numbers.finish()
        numbers.check(address)


def hand_over(redis: TestCluster, node: int) -> bool:
    """Request a failover and return False: it is not done yet.

    Redis refuses if the nodes have had no contact for long.
    """
    with suppress(ResponseError):
        redis.ask(node, "CLUSTER", "FAILOVER")
    return False


def test_a_master_of_a_cluster_hands_over_and_its_successor_dies(tmp_path: Path) -> None:
    with cluster(replicated=(0, 1, 2)) as redis, two_brokers(tmp_path, redis.url) as address:
        topic = create_topic(address, PARTITIONS, storage_format="batch")
        first = redis.owner(f"{{korvet:{topic}:0}}:log")
        second = first + 3
        numbers = Numbers(address, topic, PARTITIONS)
        numbers.reach(FEW)
        eventually(lambda: redis.is_master(second) or hand_over(redis, second), LONG)
        numbers.reach(FEW)
        redis.processes[second].kill()
        redis.processes[second].wait()
        eventually(lambda: redis.is_master(first), LONG)
        redis.start(second)
        numbers.reach(FEW)
        numbers.finish()
        numbers.check(address)
