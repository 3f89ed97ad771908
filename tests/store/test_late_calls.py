"""Check that a call whose connection was given up does not run after newer calls."""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial

import pytest
import redis
import redis.asyncio
import uvloop

from korvet.store import handshake, predecessors, reconnect
from korvet.store.address import Address
from korvet.store.async_store import AsyncStore
from korvet.store.connection import PendingCommand, PipelinedConnection
from korvet.store.errors import StoreUnavailable
from korvet.store.handshake import ConnectOptions
from korvet.store.reconnect import ConnectionEvents, Predecessor, ReconnectingConnection
from korvet.store.redis_py import ClientStore, InlineStore
from korvet.store.redis_user import rules
from korvet.store.sentinel import always
from korvet.store.sync_store import SyncStore
from tests.store.cluster_topology import cluster
from tests.store.proxy import Proxy, disconnected, proxy
from tests.store.scripts import Counted, push
from tests.support.redis_servers import TestServer, server

Push = Callable[[bytes], Awaitable[Counted]]

SILENT_S = 0.1


@asynccontextmanager
async def async_store(url: str) -> AsyncIterator[Push]:
    async with await AsyncStore.connect(url, timeout_s=SILENT_S) as store:

        async def run(value: bytes) -> Counted:
            await store.ready()
            return await store.run(push(value))

        yield run


@asynccontextmanager
async def sync_store(url: str) -> AsyncIterator[Push]:
    with SyncStore.connect(f"{url}?socket_timeout={SILENT_S}") as store:
        yield lambda value: asyncio.to_thread(store.run, push(value))


@asynccontextmanager
async def inline_store(url: str) -> AsyncIterator[Push]:
    client = redis.Redis.from_url(url, socket_timeout=SILENT_S)
    store = InlineStore.over(client)

    def run(value: bytes) -> Counted:
        return store._store.run(push(value))

    yield lambda value: asyncio.to_thread(run, value)
    await store.close()


@asynccontextmanager
async def client_store(url: str) -> AsyncIterator[Push]:
    store = ClientStore(redis.asyncio.Redis.from_url(url, socket_timeout=SILENT_S))
    yield lambda value: store.run(push(value))
    await store.close()


@pytest.mark.parametrize("connect", [async_store, sync_store, inline_store, client_store])
async def test_bytes_that_arrive_after_the_connection_was_given_up_do_not_run(
    redis_server: TestServer, connect: Callable[[str], AsyncIterator[Push]]
) -> None:
    async with proxy(redis_server.url) as wire, connect(wire.url) as run:
        await run(b"first")
        wire.hold_commands()
        with pytest.raises(StoreUnavailable):
            await run(b"late")
        assert (await run(b"newer")).length == 2
        await wire.deliver()
        with redis_server.client() as other:
            assert other.lrange("list", 0, -1) == [b"first", b"newer"]


@contextmanager
def stopped(running: TestServer) -> Iterator[Callable[[], None]]:
    """Stop the server; yield what lets it continue, which happens at the end in any case."""
    os.kill(running.pid, signal.SIGSTOP)
    resume = lambda: os.kill(running.pid, signal.SIGCONT)  # noqa: E731
    try:
        yield resume
    finally:
        resume()


async def test_a_call_stays_unanswered_until_its_connection_is_known_to_have_ended() -> None:
    with server("valkey") as running:
        store = await AsyncStore.connect(running.url, timeout_s=SILENT_S, connect_s=SILENT_S)
        async with store:
            with stopped(running) as resume:
                call = store.submit(push(b"older"))
                await disconnected(store)
                with pytest.raises(StoreUnavailable, match="no connection"):
                    await store.run(push(b"refused"))
                assert not call.done()
                resume()
                with pytest.raises(StoreUnavailable, match="answered nothing"):
                    await call
            await store.ready()
            await store.run(push(b"newer"))
            found = await store.command("LRANGE", "list", 0, -1)
            assert found in ([b"newer"], [b"older", b"newer"])


@pytest.mark.parametrize("connect", [async_store, sync_store, client_store])
async def test_a_call_fails_after_a_limit_if_its_connection_cannot_be_ended(
    monkeypatch: pytest.MonkeyPatch, connect: Callable[[str], AsyncIterator[Push]]
) -> None:
    monkeypatch.setattr(reconnect, "HELD_S", 0.01)
    monkeypatch.setattr(predecessors, "HELD_S", 0.01)
    with server("valkey") as running:
        async with connect(running.url) as run:
            await run(b"first")
            with stopped(running), pytest.raises(StoreUnavailable):
                await run(b"unknown")


async def test_reads_fail_as_soon_as_their_connection_breaks() -> None:
    with server("valkey") as running:
        store = await AsyncStore.connect(running.url, timeout_s=SILENT_S, connect_s=SILENT_S)
        async with store:
            with stopped(running), pytest.raises(StoreUnavailable, match="answered nothing"):
                await store.command("LLEN", "list")


async def test_a_connection_of_another_run_of_the_server_is_not_ended(
    redis_server: TestServer,
) -> None:
    async with await AsyncStore.connect(redis_server.url) as store:
        with redis_server.client() as other:
            number = other.client_id()
            waiting = asyncio.get_running_loop().create_future()
            writes = store._router.for_write("k")
            old = PendingCommand(waiting, push(b"x"))
            writes._predecessors.append(Predecessor(("another run", number), [old], "it broke"))
            writes.leave("the test leaves it")
            with pytest.raises(StoreUnavailable, match="it broke"):
                await waiting
            await store.ready()
            assert other.client_id() == number


async def test_calls_of_a_connection_that_was_renewed_are_ended_by_the_next_one(
    redis_server: TestServer,
) -> None:
    async with (
        proxy(redis_server.url) as wire,
        await AsyncStore.connect(wire.url, timeout_s=SILENT_S) as store,
    ):
        await store.run(push(b"first"))
        wire.hold_commands()
        late = store.submit(push(b"late"))
        store._router.for_write("k").renew("the test renews it")
        await store.ready()
        with pytest.raises(StoreUnavailable):
            await late
        assert (await store.run(push(b"newer"))).length == 2
        await wire.deliver()
        assert await store.command("LRANGE", "list", 0, -1) == [b"first", b"newer"]


@pytest.mark.parametrize("connect", [async_store, sync_store, client_store])
async def test_a_server_that_refuses_to_end_connections_is_used_with_one_warning(
    redis_server: TestServer,
    caplog: pytest.LogCaptureFixture,
    connect: Callable[[str], AsyncIterator[Push]],
) -> None:
    handshake.kill_refused.cache_clear()
    rule = [word for word in rules("list", "secret", waitaof=False) if word != "+client|kill"]
    with redis_server.client() as other:
        other.execute_command("ACL", "SETUSER", "u", *rule, "~*", "+rpush", "+select")
        wire = Proxy(redis_server.url.removeprefix("unix://"), "")
        listener = await asyncio.start_server(wire.serve, "127.0.0.1", 0)
        url = f"redis://u:secret@127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        try:
            with caplog.at_level(logging.WARNING, "korvet"):
                async with connect(url) as run:
                    for _ in range(2):
                        await run(b"x")
                        wire.hold_commands()
                        with pytest.raises(StoreUnavailable):
                            await run(b"y")
                    await run(b"z")
        finally:
            listener.close()
            await wire.close()
            other.execute_command("ACL", "DELUSER", "u")
    assert caplog.messages.count("client kill refused") == 1


async def test_a_stopped_node_of_a_cluster_runs_no_late_call() -> None:
    with cluster(replicated=()) as nodes, SyncStore.connect(nodes.url) as sync:
        async with await AsyncStore.connect(nodes.url, timeout_s=SILENT_S) as store:
            await store.run(push(b"first"))
            node = nodes.processes[nodes.owner("list")]
            node.send_signal(signal.SIGSTOP)
            try:
                waiting = store.submit(push(b"older"))
                await disconnected(store)
                assert not waiting.done()
            finally:
                node.send_signal(signal.SIGCONT)
            with pytest.raises(StoreUnavailable):
                await waiting
            newer = await asyncio.to_thread(sync.run, push(b"newer"))
            await store.ready()
            assert await store.command("LLEN", "list") == newer.length


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_the_kernel_drops_what_it_has_not_delivered_when_a_connection_closes(
    run: Callable[[Awaitable[int]], int],
) -> None:
    async def received() -> int:
        """Return the bytes that a server reads after the connection was closed."""
        with socket.socket() as listening:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            listening.bind(("127.0.0.1", 0))
            listening.listen()
            owner = ReconnectingConnection(always(Address()), ConnectOptions(), ConnectionEvents())
            _, pipeline = await asyncio.get_running_loop().create_connection(
                partial(PipelinedConnection, owner, 10.0), *listening.getsockname()
            )
            accepted, _ = listening.accept()
        pipeline.send(PendingCommand(None, command=("ECHO", b"x" * 100_000)))
        assert pipeline._transport is not None
        assert not pipeline._transport.get_write_buffer_size()
        pipeline.close("the test closes it")
        await asyncio.sleep(0.01)
        return drained(accepted)

    assert run(received()) < 100_000


def drained(connection: socket.socket) -> int:
    """Read until the end or a reset; return the number of bytes."""
    count = 0
    with connection, suppress(ConnectionResetError):
        while part := connection.recv(1 << 16):
            count += len(part)
    return count
