"""Check AsyncStore on real servers: order, pipelines, lost scripts, lost connections."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from korvet.groups.heartbeat_batcher import heartbeats_of
from korvet.scripts import keys
from korvet.scripts.append_call import append_many
from korvet.scripts.call import Call, ContractBroken, Script
from korvet.store import async_store as router
from korvet.store import reconnect
from korvet.store.async_store import AsyncStore
from korvet.store.errors import (
    CommandFailed,
    RedisTooOld,
    RedisUnreachable,
    ScriptFailed,
    StoreRefused,
    StoreUnavailable,
)
from tests.store.proxy import proxy
from tests.store.scripts import ROOT, Counted, add, echo, fail, push
from tests.support.redis_servers import TestServer, server


@pytest.fixture
async def store(redis_server: TestServer) -> AsyncIterator[AsyncStore]:
    async with await AsyncStore.connect(redis_server.url) as connected:
        yield connected


@asynccontextmanager
async def greeter(version: bytes, pings: list[bytes]) -> AsyncIterator[str]:
    """Serve the handshake of a Redis of that version; yield its URL.

    `pings` are the replies to the first PINGs, the last one first."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionResetError):
            while data := await reader.read(1000):
                if b"INFO" in data:
                    info = b"redis_version:%b\r\n" % version
                    writer.write(b"$%d\r\n%b\r\n" % (len(info), info))
                elif b"PING" in data and pings:
                    writer.write(pings.pop())
                else:
                    writer.write(b"+OK\r\n")
        writer.close()

    listener = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with listener:
        yield f"redis://127.0.0.1:{listener.sockets[0].getsockname()[1]}"


async def test_a_call_comes_back_as_its_reply(store: AsyncStore) -> None:
    assert await store.run(push(b"a")) == Counted(0, 1)
    assert await store.command("LRANGE", "list", 0, -1) == [b"a"]


async def test_the_server_is_known_after_connecting(store: AsyncStore) -> None:
    assert store.server.version
    assert store.connected
    assert not store.is_cluster


async def test_calls_of_one_iteration_are_one_pipeline(store: AsyncStore) -> None:
    await store.run(push(b"first"))
    before = store.round_trips
    replies = await store.run_many([push(b"%d" % n) for n in range(500)])
    assert [reply.length for reply in replies] == list(range(2, 502))
    assert store.round_trips == before + 1


async def test_a_heartbeat_does_not_wait_for_records(store: AsyncStore) -> None:
    records, names = bytes(64 * 1024), keys.Keys("test")
    appends = [
        store.submit(
            names.partition("missing", 0, "").append(
                count=1, size=len(records), max_timestamp=0, fields=[records]
            )
        )
        for _ in range(400)
    ]
    await store.run(heartbeats_of(names, [("g", "m", "", 1)]))
    answered = sum(future.done() for future in appends)
    await asyncio.gather(*appends)
    assert answered < len(appends)


@pytest.mark.parametrize("size", [0, 1, 8191, 8192, 300_000, 3_000_000])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
async def test_a_payload_of_any_size_arrives_whole(
    redis_server: TestServer, size: int, kind: type
) -> None:
    payload = bytes(range(256)) * (size // 256) + b"\r" * (size % 256)
    async with await AsyncStore.connect(redis_server.url) as store:
        reply = await store.run(echo(kind(payload)))
        assert reply.size == size
        assert reply.payload == payload


async def test_small_and_big_arguments_keep_their_order_in_a_pipeline(
    redis_server: TestServer,
) -> None:
    values = [b"x" * (9000 if n % 3 == 0 else 5) + b"%d" % n for n in range(200)]
    async with await AsyncStore.connect(redis_server.url) as store:
        await store.run_many([push(memoryview(value)) for value in values])
        assert await store.command("LRANGE", "list", 0, -1) == values


async def test_many_tasks_get_their_own_replies(redis_server: TestServer) -> None:
    async def one(n: int) -> bool:
        return (await store.run(echo(b"%d" % n))).payload == b"%d" % n

    async with await AsyncStore.connect(redis_server.url) as store:
        assert all(await asyncio.gather(*(one(n) for n in range(1000))))


async def test_a_cancelled_call_disturbs_no_other(store: AsyncStore) -> None:
    futures = [store.submit(push(b"%d" % n)) for n in range(5)]
    futures[1].cancel()
    assert (await futures[4]).length == 5
    assert (await futures[2]).length == 3


async def test_scripts_flushed_between_calls_are_loaded_again(store: AsyncStore) -> None:
    for length in range(1, 4):
        assert (await store.run(push(b"x"))).length == length
        await store.command("SCRIPT", "FLUSH")


async def test_a_flush_inside_a_pipeline_keeps_the_order_of_calls(
    store: AsyncStore, redis_server: TestServer
) -> None:
    await store.run_many([push(b"warm"), add(b"warm")])
    other = redis_server.client()
    other.script_flush()
    calls = [(push, add)[n % 2](b"%d" % n) for n in range(100)]
    replies = await store.run_many(calls)
    assert [reply.length for reply in replies] == list(range(3, 103))
    values = await store.command("LRANGE", "list", 2, -1)
    assert values == [b"%d" % n for n in range(100)]
    other.close()


async def test_calls_made_while_scripts_are_loaded_stay_after_older_ones(
    store: AsyncStore, redis_server: TestServer
) -> None:
    await store.run(push(b"warm"))
    with redis_server.client() as other:
        other.script_flush()
    futures = []
    for n in range(50):
        futures.append(store.submit(push(b"%d" % n)))
        await asyncio.sleep(0)
    await asyncio.gather(*futures)
    values = await store.command("LRANGE", "list", 1, -1)
    assert values == [b"%d" % n for n in range(50)]


async def test_calls_succeed_while_another_client_flushes_the_scripts(
    redis_server: TestServer,
) -> None:
    async with (
        await AsyncStore.connect(redis_server.url) as store,
        await AsyncStore.connect(redis_server.url) as vandal,
    ):
        for n in range(1, 51):
            flush = vandal.submit_command("SCRIPT", "FLUSH")
            lengths = [reply.length for reply in await store.run_many([push(b"x"), add(b"y")])]
            assert lengths == [2 * n - 1, 2 * n]
            await flush


async def test_a_script_that_fails_names_itself_and_its_version(store: AsyncStore) -> None:
    await store.run(push(b"x"))
    with pytest.raises(ScriptFailed, match=r"text\.fail v1: .*WRONGTYPE") as caught:
        await store.run(fail())
    assert (caught.value.script, caught.value.version) == ("text.fail", 1)


async def test_a_script_that_does_not_compile_says_so(redis_server: TestServer) -> None:
    broken = Script("list.push", Counted, ROOT)
    broken.__dict__.update(text="return {", sha1="0" * 40)
    async with await AsyncStore.connect(redis_server.url) as store:
        with pytest.raises(ScriptFailed, match="compil"):
            await store.run(Call(broken, ("list",), (b"x",)))
        assert (await store.run(push(b"x"))).length == 1


async def test_a_reply_of_another_shape_is_a_broken_contract(redis_server: TestServer) -> None:
    wrong = Script("text.echo", Counted, ROOT)
    async with await AsyncStore.connect(redis_server.url) as store:
        with pytest.raises(ContractBroken, match=r"text\.echo v1"):
            await store.run(Call(wrong, (), (b"x",)))
        assert (await store.run(push(b"x"))).length == 1


async def test_a_command_that_fails_names_itself(store: AsyncStore) -> None:
    with pytest.raises(CommandFailed, match="HSET: ERR wrong number"):
        await store.command("HSET", "x")


async def test_the_first_failure_of_many_is_raised_and_the_others_run(store: AsyncStore) -> None:
    await store.run(push(b"x"))
    with pytest.raises(ScriptFailed):
        await store.run_many([push(b"y"), fail(), push(b"z"), fail()])
    assert await store.command("LLEN", "list") == 3


async def test_out_of_memory_is_refused(store: AsyncStore) -> None:
    await store.command("CONFIG", "SET", "maxmemory", 1)
    try:
        with pytest.raises(StoreRefused, match="OOM"):
            await store.run(push(b"x"))
        with pytest.raises(StoreRefused, match="OOM"):
            await store.command("SET", "x", "y")
    finally:
        await store.command("CONFIG", "SET", "maxmemory", 0)
    assert (await store.run(push(b"x"))).length == 1


async def test_out_of_memory_is_refused_for_coalesced_appends(
    redis_server: TestServer,
) -> None:
    place = ("t", 0, "f" * 32, 0)
    names, shape = keys.Keys(), {"format": "record", "mode": "dense", "bits": 10}
    async with await AsyncStore.connect(redis_server.url) as store:
        await store.run(names.partition("t", 0, place[2]).create(**shape))
        rows = [(1, 1, 1, -1, -1, -1, -1, 2, b"value", b"v")] * 2
        await store.command("CONFIG", "SET", "maxmemory", 1)
        try:
            with pytest.raises(StoreRefused, match="OOM") as caught:
                await store.run(append_many(names, [(*place, rows)]))
        finally:
            await store.command("CONFIG", "SET", "maxmemory", 0)
        assert caught.value.code == "OOM"


async def test_a_replica_is_unavailable_and_readers_leave_it(store: AsyncStore) -> None:
    await store.run(push(b"x"))
    await store.command("REPLICAOF", "127.0.0.1", 1)
    try:
        mine = await store.command("CLIENT", "ID")
        with pytest.raises(StoreUnavailable):
            await store.run(push(b"y"))
        await store.ready()
        assert await store.command("CLIENT", "ID") != mine, "the store still reads from the replica"
    finally:
        await store.ready()
        await store.command("REPLICAOF", "NO", "ONE")
    await store.ready()
    assert (await store.run(push(b"z"))).length == 2


async def test_a_server_that_stays_a_replica_is_not_left_for_each_write_it_refuses(
    redis_server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 7.0
    monkeypatch.setattr(router, "monotonic", lambda: now)

    async def refused(store: AsyncStore) -> bytes:
        with pytest.raises(StoreUnavailable):
            await store.run(push(b"x"))
        await store.ready()
        return await store.command("CLIENT", "ID")

    async with await AsyncStore.connect(redis_server.url) as store:
        await store.command("REPLICAOF", "127.0.0.1", 1)
        try:
            first = await refused(store)
            now += router.LEAVE_INTERVAL_S / 2
            assert await refused(store) == first, "leaving at once would fail reads"
            now += router.LEAVE_INTERVAL_S / 2
            assert await refused(store) != first, "the address may be another server's by now"
        finally:
            await store.command("REPLICAOF", "NO", "ONE")


async def test_a_connection_cut_in_a_call_leaves_its_outcome_unknown_and_returns(
    redis_server: TestServer,
) -> None:
    async with proxy(redis_server.url) as wire, await AsyncStore.connect(wire.url) as store:
        await store.run(push(b"before"))
        wire.hold()
        future = store.submit(push(b"during"))
        waiting = store.submit_command("PING")
        async with await AsyncStore.connect(redis_server.url) as other:
            while await other.command("LLEN", "list") < 2:
                pass
        assert store.pending_bytes > 0
        wire.cut()
        with pytest.raises(StoreUnavailable):
            await waiting
        with pytest.raises(StoreUnavailable, match="no connection"):
            await store.run(push(b"too early"))
        assert store.pending_bytes == 0
        with pytest.raises(StoreUnavailable, match="broke"):
            await future
        await store.ready()
        assert (await store.run(push(b"after"))).length == 3


async def test_room_is_given_when_the_connection_breaks(redis_server: TestServer) -> None:
    async with (
        proxy(redis_server.url) as wire,
        await AsyncStore.connect(wire.url, max_pending_bytes=1000) as store,
    ):
        wire.hold()
        future = store.submit(push(b"x" * 2000))
        room = asyncio.create_task(store.room())
        await asyncio.sleep(0)
        wire.cut()
        await room
        with pytest.raises(StoreUnavailable):
            await future


async def test_a_server_that_is_gone_fails_calls_at_once_and_is_found_again(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with server("valkey") as first:
        store = await AsyncStore.connect(first.url)
        await store.run(push(b"x"))
        os.kill(first.pid, signal.SIGKILL)
        with pytest.raises(StoreUnavailable):
            while True:
                await store.run(push(b"y"))
        with pytest.raises(StoreUnavailable, match="no connection"):
            await store.run(push(b"z"))
        assert not store.connected
        await store.close()


async def test_a_connection_to_a_silent_server_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconnect, "HELD_S", 0.1)
    with server("valkey") as running:
        async with await AsyncStore.connect(running.url, timeout_s=0.05) as store:
            os.kill(running.pid, signal.SIGSTOP)
            try:
                with pytest.raises(StoreUnavailable, match="answered nothing"):
                    await store.run(push(b"x"))
            finally:
                os.kill(running.pid, signal.SIGCONT)


async def test_a_server_still_loading_is_waited_for() -> None:
    replies = [b"-LOADING Redis is loading the dataset in memory\r\n"] * 2
    async with greeter(b"7.2.0", replies) as url, await AsyncStore.connect(url) as store:
        assert store.connected
    assert not replies


async def test_closing_fails_what_is_in_flight(redis_server: TestServer) -> None:
    store = await AsyncStore.connect(redis_server.url)
    future = store.submit(push(b"x"))
    await store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await future
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.run(push(b"x"))


async def test_an_address_without_a_server_is_one_sentence() -> None:
    with pytest.raises(RedisUnreachable, match=r"no connection to Redis at /nowhere/s: .*--redis"):
        await AsyncStore.connect("unix:///nowhere/s")
    with pytest.raises(RedisUnreachable, match=r"127\.0\.0\.1:1"):
        await AsyncStore.connect("redis://127.0.0.1:1")
    with pytest.raises(RedisUnreachable, match="no Redis URL"):
        await AsyncStore.connect("http://example.org")


async def test_an_old_server_is_refused() -> None:
    async with greeter(b"5.0.14", []) as url:
        with pytest.raises(RedisTooOld, match=r"Redis 5\.0\.14 .* too old: Redis 6\.2 or newer"):
            await AsyncStore.connect(url)


async def test_a_password_and_a_database_are_used() -> None:
    with server("valkey", "--requirepass", "se:cret") as running:
        with pytest.raises(RedisUnreachable, match="NOAUTH"):
            await AsyncStore.connect(running.url)
        with pytest.raises(RedisUnreachable, match="WRONGPASS"):
            await AsyncStore.connect(running.url.replace("://", "://:wrong@"))
        url = running.url.replace("://", "://:se%3Acret@") + "?db=3"
        async with await AsyncStore.connect(url, client_name="me") as store:
            assert b"db=3" in await store.command("CLIENT", "INFO")
            assert b"name=me " in await store.command("CLIENT", "INFO")


async def test_the_metrics_hook_gets_every_call(redis_server: TestServer) -> None:
    answered: list[tuple[str, str]] = []
    async with await AsyncStore.connect(
        redis_server.url,
        on_call=lambda name, seconds, outcome: answered.append((name, outcome)),
    ) as store:
        await store.run(push(b"x"))
        await store.command("PING")
        with pytest.raises(ScriptFailed):
            await store.run(fail())
    assert answered == [("list.push", "ok"), ("PING", "ok"), ("text.fail", "error")]


async def test_room_is_waited_for_while_too_many_bytes_are_pending(
    redis_server: TestServer,
) -> None:
    async with await AsyncStore.connect(redis_server.url, max_pending_bytes=50_000) as store:
        await store.room()
        future = store.submit(push(b"x" * 100_000))
        assert store.pending_bytes > 100_000
        await store.room()
        assert future.done()
        assert store.pending_bytes == 0
