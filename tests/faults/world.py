"""The servers of one run: two brokers, and a Redis of some kind.

A store is a context manager that starts a kind of Redis with a setting: a column of the table.
"""

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Generic, TypeVar

from tests.interop.brokers import Broker
from tests.store.cluster_topology import TestCluster, cluster
from tests.store.sentinel_topology import Watched, watching
from tests.support.redis_servers import OwnRedis

ROOT = Path(__file__).parents[2]
SETTINGS = {
    "auto.create.topics.enable": "true",
    "remote.log.storage.system.enable": "true",
    "remote.log.manager.task.interval.ms": "500",
    "log.cleaner.backoff.ms": "500",
}
PERSISTENCE = {
    "none": ["--appendonly", "no"],
    "everysec": ["--appendonly", "yes", "--appendfsync", "everysec"],
    "always": ["--appendonly", "yes", "--appendfsync", "always"],
}
EARLIER = "c0f2b117f1b7bb18a0582cda8921355b78e9a653"
"""The version from which brokers are upgraded: the oldest that today's can share a Redis with."""


class Single(OwnRedis):
    """A Redis on disk. It notes how long its files were when: a power cut keeps what was synced."""

    def __init__(self, folder: Path, setting: str) -> None:
        super().__init__(folder, PERSISTENCE[setting])
        self.folder.mkdir()
        self.setting = setting
        self._sizes: list[tuple[float, dict[Path, int]]] = []
        self._ended = threading.Event()

    def files(self) -> list[Path]:
        """Return the parts of the append-only file that grow."""
        return sorted(self.folder.glob("appendonlydir/*.incr.aof"))

    def sizes_before(self, seconds: float) -> dict[Path, int]:
        before = time.monotonic() - seconds
        return next((sizes for at, sizes in reversed(self._sizes) if at <= before), {})

    @contextmanager
    def running(self) -> Iterator["Single"]:
        sampler = threading.Thread(target=self._sample, daemon=True)
        self.start()
        sampler.start()
        try:
            yield self
        finally:
            self._ended.set()
            self.end()

    def _sample(self) -> None:
        while not self._ended.wait(0.05):
            sizes = {path: path.stat().st_size for path in self.files() if path.exists()}
            self._sizes.append((time.monotonic(), sizes))


class Embedded:
    """The Redis of a broker. It notes what was synced; flags make its disk slow, or fail."""

    PATCH = """
import errno, json, os, pathlib, time
from korvet.base.synced_files import SyncedFiles
here, synced, known = pathlib.Path(__file__).parent, SyncedFiles.sync, {}
def sync(files):
    paths = (files._directory / "appendonlydir").glob("*.incr.aof")
    sizes = {str(path): path.stat().st_size for path in paths}
    while (here / "slow").exists():
        time.sleep(0.05)
    if (here / "failing").exists():
        raise OSError(errno.EIO, "no disk")
    count = synced(files)
    known.update((path, max(size, known.get(path, 0))) for path, size in sizes.items())
    (here / "new").write_text(json.dumps(known))
    (here / "new").rename(here / "synced")
    return count
SyncedFiles.sync = sync
"""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "broker-0" / "data"
        self.source = folder / "patched"
        self.source.mkdir()
        (self.source / "sitecustomize.py").write_text(self.PATCH)
        for name in ("korvet", "lua"):
            (self.source / name).symlink_to(ROOT / name)

    @property
    def url(self) -> str:
        return f"unix://{self.data}/redis.sock"

    def sizes(self) -> dict[str, int]:
        """Return how much of which file was synced."""
        found: dict[str, int] = json.loads((self.source / "synced").read_text())
        return found


def single(folder: Path, setting: str) -> AbstractContextManager[Single]:
    """Return a server with that persistence."""
    return Single(folder / "redis", setting).running()


@contextmanager
def with_clock(folder: Path, setting: str) -> Iterator[Single]:
    """Start a server whose clock the file `offset` in the folder sets."""
    libraries = [*Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")]
    assert libraries, "libfaketime is not installed: these tests are part of the suite, install it"
    (folder / "offset").write_text("+0")
    made = Single(folder / "redis", setting)
    made.environment = {
        "LD_PRELOAD": str(libraries[0]),
        "FAKETIME_TIMESTAMP_FILE": str(folder / "offset"),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    with made.running():
        yield made


@contextmanager
def embedded(folder: Path, setting: str) -> Iterator[Embedded]:
    """Let the only broker start its Redis."""
    yield Embedded(folder)


def sentinel(folder: Path, setting: str) -> AbstractContextManager[Watched]:
    """Return a master with a replica that a Sentinel watches."""
    return watching()


def on_cluster(folder: Path, setting: str) -> AbstractContextManager[TestCluster]:
    """Return three masters with a replica each."""
    return cluster(replicated=(0, 1, 2))


def without_replicas(folder: Path, setting: str) -> AbstractContextManager[TestCluster]:
    """Return three masters, of which each serves its slots while others are missing."""
    options = {"cluster-require-full-coverage": "no", "appendonly": "yes", "appendfsync": "always"}
    return cluster(replicated=(), options=options)


S = TypeVar("S", Single, Watched, TestCluster, Embedded)
Store = Callable[[Path, str], AbstractContextManager[S]]


class World(Generic[S]):
    """The servers of one run."""

    def __init__(self, redis: S, folder: Path, settings: dict[str, str], seed: int) -> None:
        self.redis = redis
        self.folder = folder
        self.random = Random(seed)
        self.topics: list[str] = []
        """The topics of the clients."""
        if isinstance(redis, Embedded):
            self.brokers = [Broker(folder / "broker-0", settings, source=redis.source)]
            return
        self.brokers = [
            Broker(folder / f"broker-{n}", settings, ("--redis", redis.url, "--node-id", str(n)))
            for n in range(2)
        ]

    def begin_as_earlier_version(self) -> None:
        """Let the brokers start as the earlier version."""
        words = ["git", "archive", EARLIER, "korvet", "lua", "pyproject.toml"]
        packed = subprocess.run(words, capture_output=True, cwd=ROOT)
        assert packed.returncode == 0, (
            f"this clone has no commit {EARLIER}: the test needs all commits"
            f" (git fetch --unshallow): {packed.stderr.decode()}"
        )
        folder = self.folder / "version"
        folder.mkdir()
        subprocess.run(["tar", "x"], input=packed.stdout, cwd=folder, check=True)
        for broker in self.brokers:
            broker.source = folder

    @property
    def addresses(self) -> str:
        return ",".join(broker.address for broker in self.brokers)

    @property
    def has_segments(self) -> bool:
        return any(self.folder.glob("segments/**/*.segment"))

    @property
    def log(self) -> str:
        return "".join(broker.log for broker in self.brokers)


@contextmanager
def world(
    store: Store[S],
    folder: Path,
    setting: str,
    mode: str,
    form: str,
    seed: int,
    is_earlier: bool = False,
) -> Iterator[World[S]]:
    """Run a Redis and two brokers until the end of the block."""
    segments = {"remote.storage.url": f"file://{folder}/segments"}
    settings = SETTINGS | segments | {"offset.mode": mode, "storage.format": form}
    with ExitStack() as stack:
        made = World(stack.enter_context(store(folder, setting)), folder, settings, seed)
        if is_earlier:
            made.begin_as_earlier_version()
        for broker in made.brokers:
            stack.callback(broker.close)
            broker.start()
        yield made
