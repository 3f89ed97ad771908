"""Check SyncStore on fakeredis and real servers."""

import socket
import threading
from collections.abc import Callable, Iterator

import pytest
from fakeredis import FakeRedis, FakeServer

from korvet.scripts.call import Call, ContractBroken, Script
from korvet.store.errors import (
    CommandFailed,
    RedisUnreachable,
    ScriptFailed,
    StoreRefused,
    StoreUnavailable,
)
from korvet.store.redis_clients import SILENT_S
from korvet.store.sync_store import SyncStore
from korvet.testing import fake_redis
from tests.store.scripts import ROOT, Counted, add, echo, fail, push
from tests.support.redis_servers import TestServer, kinds, server


@pytest.fixture(params=["fakeredis", *kinds()])
def store(request: pytest.FixtureRequest) -> Iterator[SyncStore]:
    if request.param == "fakeredis":
        yield SyncStore(fake_redis())
        return
    running: TestServer = request.getfixturevalue(f"{request.param}_server")
    with SyncStore.connect(running.url) as real:
        real.command("FLUSHALL")
        real.command("SCRIPT", "FLUSH")
        yield real


def test_a_call_comes_back_as_its_reply(store: SyncStore) -> None:
    assert store.run(push(b"a")) == Counted(0, 1)
    assert store.command("LRANGE", "list", 0, -1) == [b"a"]


def test_a_command_answers_what_redis_sent(store: SyncStore) -> None:
    assert store.command("HSET", "h", "f", "v") == 1
    assert store.command("HGETALL", "h") == [b"f", b"v"]
    assert store.command("GET", "nothing") is None


def test_many_calls_answer_in_order(store: SyncStore) -> None:
    calls = [(push, add)[n % 2](b"%d" % n) for n in range(100)]
    assert [reply.length for reply in store.run_many(calls)] == list(range(1, 101))
    assert store.command("LRANGE", "list", 0, -1) == [b"%d" % n for n in range(100)]
    assert store.run_many([]) == []


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_payload_arrives_whole(store: SyncStore, kind: type) -> None:
    payload = bytes(range(256)) * 400
    assert store.run(echo(kind(payload))).payload == payload


def test_flushed_scripts_are_loaded_again(store: SyncStore) -> None:
    for length in range(1, 4):
        assert store.run(push(b"x")).length == length
        store.command("SCRIPT", "FLUSH")


def test_a_script_that_fails_names_itself_and_its_version(store: SyncStore) -> None:
    store.run(push(b"x"))
    with pytest.raises(ScriptFailed, match=r"text\.fail v1: "):
        store.run(fail())
    with pytest.raises(ScriptFailed, match=r"text\.fail v1: "):
        store.run_many([push(b"y"), fail(), push(b"z")])
    assert store.command("LLEN", "list") == 3


def test_a_reply_of_another_shape_is_a_broken_contract(store: SyncStore) -> None:
    wrong = Script("text.echo", Counted, ROOT)
    with pytest.raises(ContractBroken):
        store.run(Call(wrong, (), (b"x",)))


def test_a_command_that_fails_names_itself(store: SyncStore) -> None:
    with pytest.raises(CommandFailed, match="HSET"):
        store.command("HSET", "x")


def test_out_of_memory_is_refused(redis_server: TestServer) -> None:
    with SyncStore.connect(redis_server.url) as store:
        store.command("CONFIG", "SET", "maxmemory", 1)
        try:
            for attempt in (
                lambda: store.run(push(b"x")),
                lambda: store.run_many([push(b"x")]),
                lambda: store.command("SET", "x", "y"),
            ):
                with pytest.raises(StoreRefused, match="OOM"):
                    attempt()
        finally:
            store.command("CONFIG", "SET", "maxmemory", 0)


def test_a_server_that_became_a_replica_is_left(redis_server: TestServer) -> None:
    with SyncStore.connect(redis_server.url) as store:
        store.command("FLUSHALL")
        mine = store.command("CLIENT", "ID")
        store.command("REPLICAOF", "127.0.0.1", 1)
        try:
            with pytest.raises(StoreRefused):
                store.run(push(b"x"))
            assert store.command("CLIENT", "ID") != mine
        finally:
            store.command("REPLICAOF", "NO", "ONE")


def test_look_again_opens_another_connection(redis_server: TestServer) -> None:
    with SyncStore.connect(redis_server.url) as store:
        first = store.command("CLIENT", "ID")
        assert store.command("CLIENT", "ID") == first
        store.look_again()
        assert store.command("CLIENT", "ID") != first


def test_a_server_that_gives_no_answer_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]

        def hang_up() -> None:
            while True:
                try:
                    listening.accept()[0].close()
                except OSError:
                    return

        threading.Thread(target=hang_up, daemon=True).start()
        with SyncStore.connect(f"redis://:secret@127.0.0.1:{port}") as store:
            with pytest.raises(
                StoreUnavailable, match=f"from Redis at 127.0.0.1:{port}: "
            ) as caught:
                store.command("PING")
            assert "secret" not in str(caught.value)
        listening.shutdown(socket.SHUT_RDWR)


def test_a_server_that_is_gone_is_unavailable() -> None:
    with server("valkey") as running:
        store = SyncStore.connect(running.url)
        store.run(push(b"x"))
    for attempt in (
        lambda: store.run(push(b"x")),
        lambda: store.run_many([push(b"x")]),
        lambda: store.command("PING"),
    ):
        with pytest.raises(StoreUnavailable, match="no answer"):
            attempt()
    store.close()


def test_with_patience_a_large_reply_is_read_after_the_connection_broke(
    redis_server: TestServer,
) -> None:
    with SyncStore.connect(redis_server.url) as store, redis_server.client() as other:
        store.command("SET", "text", "x" * 100)
        store.patience_s = 60.0
        other.client_kill_filter(_type="normal", skipme=True)
        store.ask_bulk(("GET", "text"), [("EXISTS", "text")])
        other.client_kill_filter(_type="normal", skipme=True)
        found = store.bulk_reply()
        assert found is not None
        assert (bytes(found[0]), found[1]) == (b"$100\r\n" + b"x" * 100 + b"\r\n", [1])


@pytest.mark.parametrize(
    "ask",
    [
        lambda store: store.run(push(b"x")).length,
        lambda store: store.run_many([push(b"x")])[0].length,
        lambda store: store.command("RPUSH", "list", "x"),
        lambda store: store.commands([("RPUSH", "list", "x")])[0],
    ],
)
def test_a_redis_that_is_away_is_waited_for(ask: Callable[[SyncStore], object]) -> None:
    server = FakeServer(version=(7,))
    store = SyncStore(FakeRedis(server=server, protocol=2))
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        server.connected = len(pauses) == 8

    store._pause = pause
    server.connected = False
    with pytest.raises(StoreUnavailable):
        ask(store)
    assert not pauses
    store.patience_s = 60.0
    assert ask(store) == 1
    assert pauses == [0.0, 0.05, 0.1, 0.2, 0.5, 1.0, 1.0, 1.0]


def test_a_redis_that_stays_away_is_waited_for_no_longer_than_the_patience() -> None:
    server = FakeServer(version=(7,))
    store = SyncStore(FakeRedis(server=server, protocol=2))
    store.patience_s, store._pause = 0.01, lambda _: None
    server.connected = False
    with pytest.raises(StoreUnavailable):
        store.command("PING")


def test_an_error_that_needs_an_operator_is_not_waited_for(redis_server: TestServer) -> None:
    with SyncStore.connect(redis_server.url) as store:
        store.command("CONFIG", "SET", "maxmemory", 1)
        store.patience_s, store._pause = 60.0, pytest.fail
        try:
            with pytest.raises(StoreRefused, match="OOM"):
                store.run(push(b"x"))
        finally:
            store.command("CONFIG", "SET", "maxmemory", 0)


@pytest.mark.parametrize("entry", ["", ":wrong@", "nobody:wrong@"])
def test_a_refused_password_is_an_error_at_once_that_names_the_server(
    redis_server: TestServer, entry: str
) -> None:
    with SyncStore.connect(redis_server.url) as inside:
        inside.command("CONFIG", "SET", "requirepass", "right")
        try:
            url = redis_server.url.replace("://", f"://{entry}")
            with SyncStore.connect(url) as store:
                store.patience_s, store._pause = 60.0, pytest.fail
                with pytest.raises(RedisUnreachable, match=r"at .* refused user"):
                    store.command("PING")
        finally:
            inside.command("CONFIG", "SET", "requirepass", "")


def test_a_large_reply_comes_as_its_bytes_and_later_replies_parsed(
    valkey_server: TestServer,
) -> None:
    with SyncStore.connect(valkey_server.url) as store:
        store.command("DEL", "big", "many")
        large = bytes(range(256)) * 20_000
        store.command("SET", "big", large)
        for _ in range(2):
            store.ask_bulk(("GET", "big"), [("ECHO", "a"), ("EXISTS", "big")])
            found = store.bulk_reply()
            assert found is not None
            # The next reply is requested while this one is in use.
            store.ask_bulk(("GET", "many"))
            assert store.command("EXISTS", "big") == 1
            assert bytes(found[0]) == b"$%d\r\n%b\r\n" % (len(large), large)
            assert found[1] == [b"a", 1]
            small = store.bulk_reply()
            assert small is not None and (bytes(small[0]), small[1]) == (b"$-1\r\n", [])


def test_a_reply_that_is_no_longer_waited_for_is_not_taken_for_another(
    valkey_server: TestServer,
) -> None:
    with SyncStore.connect(valkey_server.url) as store:
        for n in range(3):
            store.ask_bulk(("ECHO", f"{n}"))
        found = store.bulk_reply()
        assert found is not None and bytes(found[0]) == b"$1\r\n2\r\n"
        store.ask_bulk(("ECHO", "lost"))
        store.forget_bulk()
        assert store.command("ECHO", "next") == b"next"


def test_a_refused_command_has_no_bytes_and_the_connection_stays_in_step(
    valkey_server: TestServer,
) -> None:
    with SyncStore.connect(valkey_server.url) as store:
        store.command("SET", "text", "v")
        wrong = ("LRANGE", "text", 0, -1)
        for command, then in ((wrong, []), (("GET", "text"), [wrong])):
            store.ask_bulk(command, then)
            assert store.bulk_reply() is None
        assert store.command("GET", "text") == b"v"


def test_a_connection_that_breaks_within_a_large_reply_is_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer_half() -> None:
            connection, _ = listener.accept()
            with connection:
                while b"ECHO" not in (message_count := connection.recv(65536)):
                    connection.sendall(b"+OK\r\n" * message_count.count(b"*"))
                connection.sendall(b"$100\r\nhalf")

        thread = threading.Thread(target=answer_half)
        thread.start()
        url = f"redis://127.0.0.1:{listener.getsockname()[1]}"
        with SyncStore.connect(url) as store:
            store.ask_bulk(("GET", "text"))
            with pytest.raises(StoreUnavailable):
                store.bulk_reply()
        thread.join()


def test_a_client_waits_for_a_silent_server_within_a_limit() -> None:
    """Before its version 8, redis-py waits without a limit."""
    with SyncStore.connect("redis://localhost") as store:
        assert store._client.connection_pool.connection_kwargs["socket_timeout"] == SILENT_S
    with SyncStore.connect("redis://localhost?socket_timeout=3") as store:
        assert store._client.connection_pool.connection_kwargs["socket_timeout"] == 3
