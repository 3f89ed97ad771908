"""The stores behind Sentinel: the master is found, and found again after a failover."""

import asyncio
import contextlib
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis

from korvet.store.aio import AsyncStore
from korvet.store.errors import RedisUnreachable, StoreUnavailable
from korvet.store.sync import SyncStore
from korvet.store.wake import Wake
from tests.servers import binary
from tests.store.clusters import free_ports, until
from tests.store.scripts import push


@dataclass
class Watched:
    """A master, its replica, and the Sentinel that watches them."""

    master: int
    replica: int
    sentinel: int
    process: "subprocess.Popen[str]"

    @property
    def url(self) -> str:
        return f"redis+sentinel://127.0.0.1:{self.sentinel}/themaster"

    def ask(self, port: int, *command: str | int) -> object:
        """The raw reply of the server at the port."""
        with redis.Redis(port=port, protocol=2) as client:
            client.response_callbacks = {}  # type: ignore[assignment]
            return client.execute_command(*command)


@pytest.fixture
def watched() -> Iterator[Watched]:
    master, replica, sentinel = free_ports(3)
    with tempfile.TemporaryDirectory(prefix="kv-") as directory, contextlib.ExitStack() as stack:
        process = start(stack, directory, "master", [f"port {master}"])
        made = Watched(master, replica, sentinel, process)
        of = f"replicaof 127.0.0.1 {made.master}"
        start(stack, directory, "replica", [f"port {made.replica}", of])
        watch = f"sentinel monitor themaster 127.0.0.1 {made.master} 1"
        rest = [
            "sentinel down-after-milliseconds themaster 1000",
            "sentinel failover-timeout themaster 3000",
        ]
        start(stack, directory, "sentinel", [f"port {made.sentinel}", watch, *rest], "--sentinel")
        until(lambda: b"link_status:up" in bytes(made.ask(made.replica, "INFO", "replication")))  # type: ignore[call-overload]
        until(lambda: made.ask(made.sentinel, "SENTINEL", "REPLICAS", "themaster") != [])
        yield made


def start(
    stack: contextlib.ExitStack, directory: str, name: str, lines: list[str], *options: str
) -> "subprocess.Popen[str]":
    """One server with this configuration runs until the stack is closed."""
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


def answers(store: SyncStore) -> bool:
    """Whether the Sentinel names a master that answers; a busy machine makes it hesitate."""
    try:
        return bool(store.command("PING") == b"PONG")
    except StoreUnavailable:
        return False


async def test_the_master_is_found_and_followed(watched: Watched) -> None:
    async with (
        await AsyncStore.connect(watched.url) as store,
        await Wake.connect(watched.url) as wake,
        wake.listen(["a"]) as bell,
    ):
        assert (await store.run(push(b"before"))).length == 1
        assert not store.is_promoted("list")
        with SyncStore.connect(watched.url) as sync:
            until(lambda: answers(sync))
            assert sync.run(push(b"before")).length == 2
        until(lambda: watched.ask(watched.replica, "LLEN", "list") == 2)
        watched.process.kill()
        async with asyncio.timeout(30):
            role = [b"slave"]
            while role[0] != b"master":
                role = list(watched.ask(watched.replica, "ROLE"))  # type: ignore[call-overload]
            while True:
                try:
                    reply = await store.run(push(b"after"))
                except StoreUnavailable:
                    await asyncio.sleep(0)
                    continue
                if watched.ask(watched.replica, "LLEN", "list") == reply.length:
                    break
        assert reply.length == 3
        assert store.is_promoted("list")
        with SyncStore.connect(watched.url) as sync:
            until(lambda: answers(sync))
            assert sync.run(push(b"after")).length == reply.length + 1
        async with asyncio.timeout(30):
            while not watched.ask(watched.replica, "PUBLISH", "a", "x"):
                await bell.wait(0.01)
            assert await bell.wait(30)


async def test_a_master_nobody_watches_is_said() -> None:
    (port,) = free_ports(1)
    with pytest.raises(RedisUnreachable, match="names a master 'themaster'"):
        await AsyncStore.connect(f"redis+sentinel://127.0.0.1:{port}/themaster", connect_s=1)
