"""The faults, and what a Redis with each setting does then.

A fault is a function of the world. It returns when what failed works again.
"""

import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import psutil
import redis
from redis.exceptions import ResponseError

from korvet.base.errors import ErrorCode
from tests.faults.world import (
    PERSISTENCE,
    Embedded,
    Single,
    Store,
    World,
    embedded,
    on_cluster,
    sentinel,
    single,
    with_clock,
    without_replicas,
)
from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic
from tests.interop.librdkafka import eventually, producer, read, send
from tests.interop.numbers import LONG
from tests.interop.records import Record
from tests.store.cluster_topology import TestCluster
from tests.store.sentinel_topology import Watched
from tests.support.redis_servers import binary

STOPPED_S = 3.0
"""Seconds for which a process is stopped."""


def kill_broker(at: World[Any]) -> None:
    broker = at.random.choice(at.brokers)
    broker.kill()
    broker.start()


def stop_broker(at: World[Any]) -> None:
    pid = at.random.choice(at.brokers).pid
    os.kill(pid, signal.SIGSTOP)
    time.sleep(STOPPED_S)
    os.kill(pid, signal.SIGCONT)


def stop_redis(at: World[Single]) -> None:
    at.redis.signal(signal.SIGSTOP)
    time.sleep(STOPPED_S)
    at.redis.signal(signal.SIGCONT)


def kill_redis(at: World[Single]) -> None:
    at.redis.end()
    at.redis.start()


def kill_all(at: World[Single]) -> None:
    for broker in at.brokers:
        broker.kill()
    kill_redis(at)
    with ThreadPoolExecutor() as starting:
        list(starting.map(Broker.start, at.brokers))


def cut_power(at: World[Single]) -> None:
    """Drop what was not synced: with everysec the last second and, in part, the one before."""
    unsynced_s = {"everysec": 1 + at.random.random(), "always": 0.0, "none": 0.0}
    sizes = (
        at.redis.sizes_before(unsynced_s[at.redis.setting]) if unsynced_s[at.redis.setting] else {}
    )
    at.redis.end()
    for path, size in sizes.items():
        if path.exists():
            os.truncate(path, size)
    at.redis.start()


def older_file(at: World[Single]) -> None:
    """Start Redis with the data of a second ago."""
    at.redis.copy(at.folder / "earlier")
    time.sleep(1)
    at.redis.start_with(at.folder / "earlier")


def cut_file(at: World[Single]) -> None:
    """Truncate the file in the middle of a command of the last second."""
    sizes = at.redis.sizes_before(1)
    at.redis.end()
    for path, size in sizes.items():
        os.truncate(path, max(0, size - at.random.randrange(1, 40)))
    at.redis.start()


def break_file(at: World[Single]) -> None:
    """Flip a bit of a command of the last second; Redis's own check then cuts the file there."""
    sizes = at.redis.sizes_before(1)
    at.redis.end()
    for path, size in sizes.items():
        data = bytearray(path.read_bytes())
        data[data.index(b"\r\n*", size) + 2] ^= 0x10
        path.write_bytes(data)
    check = at.redis.folder / "valkey-check-aof"
    if not check.exists():
        program = binary("valkey")
        assert program
        check.symlink_to(program)
    for path in sizes:
        words = [str(check), "--fix", str(path)]
        subprocess.run(words, input=b"y\n", capture_output=True, check=True, timeout=60)
    at.redis.start()


def empty_redis(at: World[Single]) -> None:
    """Replace Redis by an empty one, as a failover to a replica without data does."""
    at.redis.end()
    shutil.rmtree(at.redis.folder / "appendonlydir", ignore_errors=True)
    at.redis.start()


def flush_redis(at: World[Single]) -> None:
    with at.redis.client() as client:
        client.flushall()


def flush_scripts(at: World[Single]) -> None:
    with at.redis.client() as client:
        client.script_flush()


def fill_redis(at: World[Single]) -> None:
    """Let Redis refuse what grows for some time."""
    with at.redis.client() as client:
        client.config_set("maxmemory", "1mb")
        time.sleep(1.5)
        client.config_set("maxmemory", "0")


def drop_connections(at: World[Single]) -> None:
    """End every connection of the brokers to Redis, several times."""
    for _ in range(5):
        with at.redis.client() as client:
            client.client_kill_filter(_type="normal", skipme=True)
        time.sleep(0.2)


def change_versions(at: World[Any]) -> None:
    """Upgrade one broker after the other, write what only the new ones have, and go back."""
    topic = ""
    for source in (None, at.brokers[0].source):
        for broker in at.brokers:
            assert broker.stop() == 0
            broker.source = source
            broker.start()
            time.sleep(1)
        topic = topic or create_topic(at.addresses)
        send(producer(at.addresses), topic, [Record(b"k", b"v")] * 10)
    assert len(read(at.addresses, topic, 20)) == 20


def fill_disk(at: World[Single]) -> None:
    """Let the writes to the file fail for some time. With `always` Redis ends then."""
    limits = resource.prlimit(at.redis.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(at.redis.pid, resource.RLIMIT_FSIZE, (1, limits[1]))
    time.sleep(1.5)
    if at.redis.setting == "always":
        kill_redis(at)
    else:
        resource.prlimit(at.redis.pid, resource.RLIMIT_FSIZE, limits)


def set_clock(at: World[Single]) -> None:
    """Set Redis's clock an hour forward, and after a second back."""
    for offset in ("+3600", "+0"):
        (at.folder / "offset").write_text(offset)
        time.sleep(1)


def kill_embedded(at: World[Embedded]) -> None:
    """Kill the Redis of a broker, which starts it again."""
    [server] = psutil.Process(at.brokers[0].pid).children()
    server.kill()


def cut_power_of_embedded(at: World[Embedded]) -> None:
    """Drop what was not synced, and pretend that the machine has been started again."""
    at.brokers[0].kill_everything()
    for path, size in at.redis.sizes().items():
        # A rewrite has removed the earlier file.
        if os.path.exists(path):
            os.truncate(path, size)
    (at.redis.data / "boot_id").write_text("another boot")
    at.brokers[0].start()


def slow_disk(at: World[Embedded]) -> None:
    _flag(at, "slow")


def failing_disk(at: World[Embedded]) -> None:
    _flag(at, "failing")


def _flag(at: World[Embedded], name: str) -> None:
    flag = at.redis.source / name
    flag.touch()
    time.sleep(STOPPED_S)
    flag.unlink()


def cut_off(master: redis.Redis, replica: redis.Redis) -> None:
    """End the link of a replica, which cannot authenticate any more: it lags."""
    for name in ("masteruser", "masterauth"):
        replica.config_set(name, "nobody")
    master.client_kill_filter(_type="replica")


def _become_master(at: World[Watched]) -> None:
    """Wait for the failover, and give the new master a replica."""
    redis = at.redis
    eventually(lambda: redis.is_master(redis.replica), LONG)
    redis.ask(redis.spare, "REPLICAOF", "127.0.0.1", redis.replica)


def fail_over(at: World[Watched]) -> None:
    at.redis.ask(at.redis.sentinels[0], "SENTINEL", "FAILOVER", "themaster")
    _become_master(at)


def kill_master(at: World[Watched]) -> None:
    at.redis.old.kill()
    _become_master(at)


def kill_master_with_lag(at: World[Watched]) -> None:
    """Kill a master whose only replica has not had the last second."""
    with at.redis.client(at.redis.master) as master, at.redis.client(at.redis.replica) as replica:
        cut_off(master, replica)
    time.sleep(1)
    kill_master(at)


def stop_master(at: World[Watched]) -> None:
    """Stop a master until its replica is promoted: it resumes as a master."""
    at.redis.old.send_signal(signal.SIGSTOP)
    _become_master(at)
    at.redis.old.send_signal(signal.SIGCONT)


def stop_replica(at: World[Watched]) -> None:
    at.redis.heir.send_signal(signal.SIGSTOP)
    time.sleep(STOPPED_S)
    at.redis.heir.send_signal(signal.SIGCONT)


def _node(at: World[TestCluster]) -> int:
    """Return the master of a log of the clients."""
    return at.redis.owner(f"{{korvet:{at.random.choice(at.topics)}:0}}:log")


def hand_over_node(at: World[TestCluster]) -> None:
    """Let a replica take over by CLUSTER FAILOVER, for which both must agree."""
    replica = _node(at) + 3

    def ask() -> bool:
        # Redis refuses if the nodes have had no contact for long.
        with suppress(ResponseError):
            at.redis.ask(replica, "CLUSTER", "FAILOVER")
        return False

    eventually(lambda: at.redis.is_master(replica) or ask(), LONG)


@contextmanager
def _without(at: World[TestCluster], node: int) -> Iterator[None]:
    """Kill a node of the cluster until the end of the block."""
    at.redis.processes[node].kill()
    at.redis.processes[node].wait()
    yield
    at.redis.start(node)


def _kill_node(at: World[TestCluster], node: int) -> None:
    """Kill a master of the cluster until its replica is promoted."""
    with _without(at, node):
        eventually(lambda: at.redis.is_master(node + 3), LONG)


def stop_node(at: World[TestCluster]) -> None:
    """Stop a master until its replica is promoted: it resumes as a master."""
    node = _node(at)
    at.redis.processes[node].send_signal(signal.SIGSTOP)
    eventually(lambda: at.redis.is_master(node + 3), LONG)
    at.redis.processes[node].send_signal(signal.SIGCONT)


def kill_node(at: World[TestCluster]) -> None:
    _kill_node(at, _node(at))


def kill_node_with_lag(at: World[TestCluster]) -> None:
    """Kill a master whose only replica has not had the last second."""
    node = _node(at)
    with at.redis.client(node) as master, at.redis.client(node + 3) as replica:
        cut_off(master, replica)
    time.sleep(1)
    _kill_node(at, node)


def stop_node_replicas(at: World[TestCluster]) -> None:
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for process in at.redis.processes[3:]:
            process.send_signal(number)
        time.sleep(STOPPED_S if number == signal.SIGSTOP else 0)


def move_slots(at: World[TestCluster]) -> None:
    """Move the slots of the clients' logs to the next masters, and back."""
    for _ in range(2):
        for topic in at.topics:
            key = f"{{korvet:{topic}:0}}:log"
            source = at.redis.owner(key)
            at.redis.move(key, source, (source + 1) % 3)


def lose_node(at: World[TestCluster]) -> None:
    """Let a master be missing for some time: partitions of the others are written and read.

    It is not the one that has the topics, without which brokers write and read nothing.
    """
    topic, began = create_topic(at.addresses, 9), time.monotonic()
    owners = [at.redis.owner(f"{{korvet:{topic}:{number}}}:log") for number in range(9)]
    node = at.random.choice([n for n in range(3) if n != at.redis.owner("korvet:topics")])
    errors: list[int | None] = []
    with _without(at, node):
        sink, once = producer(at.addresses), producer(at.addresses, retries=0)
        for number, owner in enumerate(owners):
            if owner != node:
                send(sink, topic, [Record(b"k", b"v")] * 10, number)
                read(at.addresses, topic, 10, partition=number)
            else:
                once.produce(
                    topic,
                    partition=number,
                    on_delivery=lambda error, _: errors.append(error and error.code()),
                )
        assert once.flush(LONG) == 0
        assert errors == [ErrorCode.KAFKA_STORAGE_ERROR] * owners.count(node)
        time.sleep(max(0, began + STOPPED_S - time.monotonic()))


DURABILITY = ("memory", "replicas:1")
"""What the topics' config `durability` is where Redis has replicas; `fsync` with the embedded."""
KEEPS, LOSES, FORGETS = "keeps all", "may lose its last records", "forgets the topics"
ACKED = "keeps what is acknowledged to producers"
"""What a server with that setting does."""


class Row(NamedTuple):
    """A fault, the store that it happens to, and what Redis does with each setting."""

    inject: Callable[[World[Any]], None]
    store: Store[Any]
    promises: dict[str, str]
    has_witness: bool = True
    """Whether a broker that knows the ends of the logs lives on."""
    is_planned: bool = False
    """Whether brokers begin as the earlier version, and no client may report an error."""


def _single(inject: Callable[[World[Any]], None], *promises: str, witness: bool = True) -> Row:
    """Return a row for one Redis: what it does without a file, with everysec, and with always."""
    of = zip(PERSISTENCE, promises or (KEEPS,) * 3, strict=True)
    return Row(inject, single, {setting: promise for setting, promise in of if promise}, witness)


def _replicated(inject: Callable[[World[Any]], None], store: Store[Any], memory: str) -> Row:
    """Return a row for a Redis with replicas: a record that a replica has is kept."""
    return Row(
        inject,
        store,
        dict(zip(DURABILITY, (memory, KEEPS if memory == KEEPS else ACKED), strict=True)),
    )


def _embedded(inject: Callable[[World[Any]], None], second: str = KEEPS) -> Row:
    """Return a row for the embedded Redis, which is synced each second, or for each append.

    An append waits for the sync, other commands do not: the last acknowledgements of a share
    group can be lost with the power.
    """
    promises = {"embedded": second, "fsync": KEEPS if second == KEEPS else ACKED}
    return Row(inject, embedded, promises, has_witness=second == KEEPS)


ONE, NONE = (FORGETS, LOSES, KEEPS), (FORGETS,) * 3
FAULTS: dict[str, Row] = {
    "brokers are upgraded, and downgraded": Row(
        change_versions, single, {"none": KEEPS}, is_planned=True
    ),
    "a broker is killed": _single(kill_broker),
    "a broker is stopped for 3 s": _single(stop_broker),
    "connections to Redis break": _single(drop_connections),
    "Redis is stopped for 3 s": _single(stop_redis),
    "Redis is full for 1.5 s": _single(fill_redis),
    "Redis forgets its scripts": _single(flush_scripts),
    "Redis is killed": _single(kill_redis, *ONE),
    "Redis and all brokers are killed": _single(kill_all, *ONE, witness=False),
    "power fails": _single(cut_power, *ONE),
    "Redis starts from a file of a second ago": _single(older_file, "", LOSES, LOSES),
    "the end of the file is cut off": _single(cut_file, "", LOSES, LOSES),
    "a command in the file is broken": _single(break_file, "", LOSES, LOSES),
    "Redis is replaced by an empty one": _single(empty_redis, *NONE),
    "FLUSHALL": _single(flush_redis, *NONE),
    "the disk of Redis is full for 1.5 s": _single(fill_disk, "", KEEPS, KEEPS),
    "Redis's clock is set forward, and back": Row(set_clock, with_clock, {"none": KEEPS}),
    "Sentinel: failover by command": _replicated(fail_over, sentinel, LOSES),
    "Sentinel: the master is killed": _replicated(kill_master, sentinel, LOSES),
    "Sentinel: its replica lags by 1 s": _replicated(kill_master_with_lag, sentinel, LOSES),
    "Sentinel: a stopped master resumes": _replicated(stop_master, sentinel, LOSES),
    "Sentinel: the replica is stopped for 3 s": _replicated(stop_replica, sentinel, KEEPS),
    "Cluster: failover by command": _replicated(hand_over_node, on_cluster, KEEPS),
    "Cluster: a master is killed": _replicated(kill_node, on_cluster, LOSES),
    "Cluster: its replica lags by 1 s": _replicated(kill_node_with_lag, on_cluster, LOSES),
    "Cluster: a stopped master resumes": _replicated(stop_node, on_cluster, LOSES),
    "Cluster: replicas are stopped for 3 s": _replicated(stop_node_replicas, on_cluster, KEEPS),
    "Cluster: a master without a replica is missing for 3 s": Row(
        lose_node, without_replicas, {"memory": KEEPS}
    ),
    "Cluster: slots move": _replicated(move_slots, on_cluster, KEEPS),
    "embedded: the broker is killed": _embedded(kill_broker),
    "embedded: Redis is killed": _embedded(kill_embedded),
    "embedded: a sync takes 3 s": _embedded(slow_disk),
    "embedded: syncs fail for 3 s": _embedded(failing_disk),
    "embedded: power fails": _embedded(cut_power_of_embedded, LOSES),
}
