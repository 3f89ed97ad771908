"""A Redis on disk, two brokers, and the faults that can happen to them.

A fault is a function of the world. It returns when what failed works again.
"""

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic
from tests.interop.librdkafka import producer, read, send
from tests.interop.records import Record
from tests.support.redis_servers import OwnRedis, binary

SETTINGS = {"auto.create.topics.enable": "true"}
PERSISTENCE = {
    "none": ["--appendonly", "no"],
    "everysec": ["--appendonly", "yes", "--appendfsync", "everysec"],
    "always": ["--appendonly", "yes", "--appendfsync", "always"],
}
EARLIER = "c0f2b117f1b7bb18a0582cda8921355b78e9a653"
"""The version from which brokers are upgraded: the oldest commit that can run beside today's."""
STOPPED_S = 3.0
"""Seconds for which a process is stopped."""


class World:
    """The servers of one run."""

    def __init__(self, folder: Path, persistence: str, mode: str, form: str, seed: int) -> None:
        self.random = Random(seed)
        self.persistence = persistence
        self.redis = OwnRedis(folder / "redis", PERSISTENCE[persistence])
        self.redis.folder.mkdir(parents=True)
        settings = SETTINGS | {"offset.mode": mode, "storage.format": form}
        self.brokers = [
            Broker(
                folder / f"broker-{n}", settings, ("--redis", self.redis.url, "--node-id", str(n))
            )
            for n in range(2)
        ]
        self.earlier = folder / "earlier"
        self._sizes: list[tuple[float, dict[Path, int]]] = []
        self._ended = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)

    def begin_as_earlier_version(self, folder: Path) -> None:
        """Let the brokers start as the earlier version, which is unpacked to the folder."""
        folder.mkdir()
        words = ["git", "archive", EARLIER, "korvet", "lua", "pyproject.toml"]
        packed = subprocess.run(words, capture_output=True, cwd=Path(__file__).parent.parent.parent)
        assert packed.returncode == 0, (
            f"this clone has no commit {EARLIER}: the test needs all commits"
            f" (git fetch --unshallow): {packed.stderr.decode()}"
        )
        subprocess.run(["tar", "x"], input=packed.stdout, cwd=folder, check=True)
        for broker in self.brokers:
            broker.source = folder

    @property
    def addresses(self) -> str:
        return ",".join(broker.address for broker in self.brokers)

    @property
    def log(self) -> str:
        return "".join(broker.log for broker in self.brokers)

    def files(self) -> list[Path]:
        """Return the parts of the append-only file that grow."""
        return sorted(self.redis.folder.glob("appendonlydir/*.incr.aof"))

    def _sample(self) -> None:
        """Note how long the files were when: a power cut keeps what was synced then."""
        while not self._ended.wait(0.05):
            sizes = {path: path.stat().st_size for path in self.files() if path.exists()}
            self._sizes.append((time.monotonic(), sizes))

    def sizes_before(self, seconds: float) -> dict[Path, int]:
        before = time.monotonic() - seconds
        return next((sizes for at, sizes in reversed(self._sizes) if at <= before), {})


@contextmanager
def world(
    folder: Path, persistence: str, mode: str, form: str, seed: int, is_earlier: bool
) -> Iterator[World]:
    """Run a Redis and two brokers until the end of the block."""
    made = World(folder, persistence, mode, form, seed)
    if is_earlier:
        made.begin_as_earlier_version(folder / "version")
    made.redis.start()
    try:
        for broker in made.brokers:
            broker.start()
        made._sampler.start()
        yield made
    finally:
        made._ended.set()
        for broker in made.brokers:
            broker.close()
        made.redis.end()


def kill_broker(at: World) -> None:
    broker = at.random.choice(at.brokers)
    broker.kill()
    broker.start()


def stop_broker(at: World) -> None:
    pid = at.random.choice(at.brokers).pid
    os.kill(pid, signal.SIGSTOP)
    time.sleep(STOPPED_S)
    os.kill(pid, signal.SIGCONT)


def stop_redis(at: World) -> None:
    at.redis.signal(signal.SIGSTOP)
    time.sleep(STOPPED_S)
    at.redis.signal(signal.SIGCONT)


def kill_redis(at: World) -> None:
    at.redis.end()
    at.redis.start()


def kill_all(at: World) -> None:
    for broker in at.brokers:
        broker.kill()
    kill_redis(at)
    for broker in at.brokers:
        broker.start()


def cut_power(at: World) -> None:
    """Drop what was not synced: with everysec the last second and, in part, the one before."""
    unsynced_s = {"everysec": 1 + at.random.random(), "always": 0.0, "none": 0.0}
    sizes = at.sizes_before(unsynced_s[at.persistence]) if unsynced_s[at.persistence] else {}
    at.redis.end()
    for path, size in sizes.items():
        if path.exists():
            os.truncate(path, size)
    at.redis.start()


def older_file(at: World) -> None:
    """Start Redis with the data of a second ago."""
    at.redis.copy(at.earlier)
    time.sleep(1)
    at.redis.start_with(at.earlier)


def cut_file(at: World) -> None:
    """Truncate the file in the middle of a command of the last second."""
    sizes = at.sizes_before(1)
    at.redis.end()
    for path, size in sizes.items():
        os.truncate(path, max(0, size - at.random.randrange(1, 40)))
    at.redis.start()


def break_file(at: World) -> None:
    """Flip a bit of a command of the last second; Redis's own check then cuts the file there."""
    sizes = at.sizes_before(1)
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


def empty_redis(at: World) -> None:
    """Replace Redis by an empty one, as a failover to a replica without data does."""
    at.redis.end()
    shutil.rmtree(at.redis.folder / "appendonlydir", ignore_errors=True)
    at.redis.start()


def flush_redis(at: World) -> None:
    with at.redis.client() as client:
        client.flushall()


def flush_scripts(at: World) -> None:
    with at.redis.client() as client:
        client.script_flush()


def fill_redis(at: World) -> None:
    """Let Redis refuse what grows for some time."""
    with at.redis.client() as client:
        client.config_set("maxmemory", "1mb")
        time.sleep(1.5)
        client.config_set("maxmemory", "0")


def drop_connections(at: World) -> None:
    """End every connection of the brokers to Redis, several times."""
    for _ in range(5):
        with at.redis.client() as client:
            client.client_kill_filter(_type="normal", skipme=True)
        time.sleep(0.2)


def change_versions(at: World) -> None:
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


Fault = Callable[[World], None]
KEEPS, LOSES, FORGETS = "keeps all", "may lose its last records", "forgets the topics"
"""What a server with that persistence does."""


class Row(NamedTuple):
    """A fault, and what Redis does with each persistence; "" if the fault cannot happen there."""

    inject: Fault
    none: str = KEEPS
    everysec: str = KEEPS
    always: str = KEEPS
    has_witness: bool = True
    """Whether a broker that knows the ends of the logs lives on."""
    is_planned: bool = False
    """Whether brokers begin as the earlier version, and no client may report an error."""


FAULTS: dict[str, Row] = {
    "brokers are upgraded, and downgraded": Row(change_versions, KEEPS, "", "", is_planned=True),
    "a broker is killed": Row(kill_broker),
    "a broker is stopped for 3 s": Row(stop_broker),
    "connections to Redis break": Row(drop_connections),
    "Redis is stopped for 3 s": Row(stop_redis),
    "Redis is full for 1.5 s": Row(fill_redis),
    "Redis forgets its scripts": Row(flush_scripts),
    "Redis is killed": Row(kill_redis, FORGETS, LOSES, KEEPS),
    "Redis and all brokers are killed": Row(kill_all, FORGETS, LOSES, KEEPS, has_witness=False),
    "power fails": Row(cut_power, FORGETS, LOSES, KEEPS),
    "Redis starts from a file of a second ago": Row(older_file, "", LOSES, LOSES),
    "the end of the file is cut off": Row(cut_file, "", LOSES, LOSES),
    "a command in the file is broken": Row(break_file, "", LOSES, LOSES),
    "Redis is replaced by an empty one": Row(empty_redis, FORGETS, FORGETS, FORGETS),
    "FLUSHALL": Row(flush_redis, FORGETS, FORGETS, FORGETS),
}
