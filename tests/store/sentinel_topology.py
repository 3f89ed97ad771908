"""A master, its replica, and the Sentinels that watch them, on loopback."""

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import redis

from tests.store.cluster_topology import until
from tests.support.ports import free_ports
from tests.support.redis_servers import binary


@dataclass
class Watched:
    """The ports; `old` and `heir` are the processes of the first master and its replica.

    `spare` is a server without a role yet."""

    master: int
    replica: int
    spare: int
    sentinels: list[int]
    old: "subprocess.Popen[str]"
    heir: "subprocess.Popen[str]"

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.sentinels)
        return f"redis+sentinel://{hosts}/themaster"

    def client(self, port: int) -> redis.Redis:
        """Return a client of the server at the port."""
        return redis.Redis(port=port, protocol=2)

    def ask(self, port: int, *command: str | int) -> object:
        """Return the raw reply of the server at the port to a command."""
        with self.client(port) as client:
            client.response_callbacks = {}  # type: ignore[assignment]
            return client.execute_command(*command)

    def text(self, port: int, *command: str | int) -> str:
        """Return the reply of the server at the port, decoded as text."""
        return bytes(self.ask(port, *command)).decode()  # type: ignore[call-overload, no-any-return]

    def known(self, guard: int, what: str) -> int:
        """Return the number of REPLICAS or of other SENTINELS in that Sentinel's list."""
        return len(self.ask(guard, "SENTINEL", what, "themaster"))  # type: ignore[arg-type]

    def is_master(self, port: int) -> bool:
        """Return whether the INFO of the server at the port names it a master."""
        return "role:master" in self.text(port, "INFO", "replication")


@contextmanager
def watching(
    sentinels: int = 1, down_after_ms: int = 1000, lives_on: bool = False
) -> Iterator[Watched]:
    """Start a master, its replica in sync, and Sentinels that have found them and each other.

    `lives_on`: the master refuses REPLICAOF, so that Sentinels cannot make it a replica."""
    stubborn = ['rename-command REPLICAOF ""', 'rename-command SLAVEOF ""'] if lives_on else []
    master, replica, spare, *guards = free_ports(3 + sentinels)
    with tempfile.TemporaryDirectory(prefix="kv-") as directory, contextlib.ExitStack() as stack:
        old = start(stack, directory, "master", [f"port {master}", *stubborn])
        of = f"replicaof 127.0.0.1 {master}"
        heir = start(stack, directory, "replica", [f"port {replica}", of])
        start(stack, directory, "spare", [f"port {spare}"])
        made = Watched(master, replica, spare, guards, old, heir)
        until(lambda: "master_link_status:up" in made.text(replica, "INFO", "replication"))
        for guard in guards:
            lines = [
                f"port {guard}",
                f"sentinel monitor themaster 127.0.0.1 {master} {sentinels // 2 + 1}",
                f"sentinel down-after-milliseconds themaster {down_after_ms}",
                "sentinel failover-timeout themaster 20000",
            ]
            start(stack, directory, f"sentinel-{guard}", lines, "--sentinel")
        until(lambda: all(made.known(guard, "REPLICAS") == 1 for guard in guards))
        until(lambda: all(made.known(guard, "SENTINELS") == sentinels - 1 for guard in guards))
        yield made


def start(
    stack: contextlib.ExitStack, directory: str, name: str, lines: list[str], *options: str
) -> "subprocess.Popen[str]":
    """Start a server with this configuration; closing the stack ends it."""
    home = Path(directory) / name
    home.mkdir()
    config = home / "conf"
    common = ["bind 127.0.0.1", f"dir {home}", 'save ""', "repl-diskless-sync-delay 0"]
    config.write_text("\n".join([*(common[:2] if options else common), *lines]) + "\n")
    process = stack.enter_context(
        subprocess.Popen(
            [str(binary("valkey")), str(config), *options], stdout=subprocess.PIPE, text=True
        )
    )
    stack.callback(process.kill)
    assert process.stdout is not None
    ready = "monitor master" if options else "eady to accept connections"
    assert any(ready in line for line in process.stdout)
    return process
