"""Check that waiting for replicas ends when its server is no longer the master."""

import asyncio
import gc
from typing import Any

import pytest

from korvet.scripts.call import Arg
from korvet.store import replica_wait as module
from korvet.store.async_store import AsyncStore
from korvet.store.connection import PipelinedConnection
from korvet.store.errors import StoreUnavailable
from korvet.store.replica_wait import ReplicaWait
from tests.support.redis_servers import TestServer


async def test_a_server_that_was_left_is_not_waited_for(
    redis_server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failover the old master may run for ten seconds, and has no replica any more."""
    async with asyncio.timeout(30), await AsyncStore.connect(redis_server.url) as store:
        copies, run = ReplicaWait(store), store.run_of("k")
        waiting = asyncio.create_task(
            copies.wait("k", run=run, replicas=1, fsync=False, timeout_s=1000)
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
        wanted = {"run": run, "replicas": 0, "fsync": False, "timeout_s": 5.0}
        assert await copies.wait("k", **wanted)  # type: ignore[arg-type]
        left = False
        ask_it = module.ask

        async def ask_and_leave(pipeline: PipelinedConnection, *command: Arg) -> Any:
            nonlocal left
            reply = await ask_it(pipeline, *command)
            left = command[0] == "WAIT"
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
            copies.wait("k", run=run, replicas=1, fsync=False, timeout_s=1000)
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
