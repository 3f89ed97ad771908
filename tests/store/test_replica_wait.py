"""Check that waiting for replicas ends when its server is no longer the master."""

import asyncio
import gc
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from korvet.embedded_redis.server import RedisServer
from korvet.scripts.call import Arg
from korvet.store import replica_wait as module
from korvet.store.async_store import AsyncStore
from korvet.store.connection import PipelinedConnection
from korvet.store.errors import StoreError, StoreUnavailable
from korvet.store.replica_wait import ReplicaWait
from tests.support.redis_servers import TestServer


async def test_a_server_that_was_left_is_not_waited_for(
    redis_server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failover the old master may run for ten seconds, and has no replica any more."""
    async with asyncio.timeout(30), await AsyncStore.connect(redis_server.url) as store:
        copies, run = ReplicaWait(store), store.run_of("k")
        waiting = asyncio.create_task(
            copies.wait("k", run=run, required=(1, False), timeout_s=1000)
        )
        while b"cmd=wait" not in await store.command("CLIENT", "LIST"):
            pass
        monkeypatch.setattr(store, "run_of", lambda key: "another")
        with pytest.raises(StoreUnavailable, match="no longer the master"):
            await waiting
        await copies.close()


async def test_the_replicas_of_a_server_that_was_left_are_not_read(
    redis_server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asyncio.timeout(30), await AsyncStore.connect(redis_server.url) as store:
        copies, runs = ReplicaWait(store), iter(["one"])

        async def silence(*_: object) -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(module, "ask", silence)
        monkeypatch.setattr(store, "run_of", lambda key: next(runs, "another"))
        with pytest.raises(StoreUnavailable, match="no longer the master"):
            await copies.replicas("k")
        await copies.close()


async def test_replicas_of_a_server_that_was_left_do_not_count(
    redis_server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asyncio.timeout(30), await AsyncStore.connect(redis_server.url) as store:
        copies, run = ReplicaWait(store), store.run_of("k")
        wanted = {"run": run, "required": (0, False), "timeout_s": 5.0}
        assert await copies.wait("k", **wanted)  # type: ignore[arg-type]
        left = False
        ask_it = module.ask

        async def ask_and_leave(pipeline: PipelinedConnection, *command: Arg) -> Any:
            nonlocal left
            reply = await ask_it(pipeline, *command)
            left = command[0] == "EVAL"
            return reply

        monkeypatch.setattr(module, "ask", ask_and_leave)
        monkeypatch.setattr(store, "run_of", lambda key: "another" if left else run)
        assert not await copies.wait("k", **wanted)  # type: ignore[arg-type]
        await copies.close()


async def test_a_cancelled_wait_leaves_no_error(
    redis_server: TestServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with asyncio.timeout(30), await AsyncStore.connect(redis_server.url) as store:
        copies, run = ReplicaWait(store), store.run_of("k")
        waiting = asyncio.create_task(
            copies.wait("k", run=run, required=(1, False), timeout_s=1000)
        )
        while b"cmd=wait" not in await store.command("CLIENT", "LIST"):
            pass
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        while b"cmd=wait" in await store.command("CLIENT", "LIST"):
            pass
        del waiting
        gc.collect()
        assert not caplog.messages
        await copies.close()


async def test_callers_that_wait_together_share_a_round(redis_server: TestServer) -> None:
    async with asyncio.timeout(30), await AsyncStore.connect(redis_server.url) as store:
        copies, run = ReplicaWait(store), store.run_of("k")
        wait = partial(copies.wait, "k", run=run, required=(0, False), timeout_s=5.0)

        async def count() -> int:
            """Return how many rounds were sent: the server has run so many EVALs."""
            text = (await store.command("INFO", "commandstats")).decode()
            found = re.search(r"cmdstat_eval:calls=(\d+)", text)
            return int(found[1]) if found else 0

        before = await count()
        assert await asyncio.gather(*(wait() for _ in range(100))) == [True] * 100
        assert await count() == before + 1
        another = asyncio.gather(*(wait() for _ in range(100)))
        await asyncio.sleep(0)
        assert await asyncio.gather(*(wait() for _ in range(100)), another)
        assert await count() <= before + 3
        await copies.close()


async def test_the_file_of_the_embedded_server_is_synced_at_once(tmp_path: Path) -> None:
    with RedisServer.launch(tmp_path) as server, Redis.from_url(server.url) as client:
        async with asyncio.timeout(30), await AsyncStore.connect(server.url) as store:
            copies, run = ReplicaWait(store), store.run_of("k")
            wait = partial(copies.wait, "k", run=run, required=(0, True), timeout_s=5.0)
            assert await asyncio.gather(*(wait() for _ in range(50))) == [True] * 50
            assert client.config_get("appendfsync") == {"appendfsync": "no"}
            client.config_set("min-replicas-to-write", 1)  # a sync has failed
            with pytest.raises(StoreError, match="NOREPLICAS"):
                await wait()
            client.config_set("min-replicas-to-write", 0)
            assert await wait()
            (tmp_path / "appendonlydir").rename(tmp_path / "elsewhere")
            with pytest.raises(StoreUnavailable, match="not on this machine"):
                await wait()
            (tmp_path / "elsewhere").rename(tmp_path / "appendonlydir")
            await copies.close()
