"""Check Sentinels that disagree, and masters that are replaced while they run."""

import asyncio
import contextlib
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from korvet.store import redis_clients, sentinel_watch
from korvet.store import sentinel as sentinels
from korvet.store.address import parse
from korvet.store.async_store import AsyncStore
from korvet.store.errors import StoreUnavailable
from korvet.store.notifications import Notifier
from korvet.store.sentinel import SentinelView, elected, leaves, view
from korvet.store.sync_store import SyncStore
from tests.store.proxy import disconnected
from tests.store.scripts import Counted, push
from tests.store.sentinel_topology import start
from tests.support.ports import free_ports

OLD, NEW = ("127.0.0.1", 1), ("127.0.0.1", 2)


@pytest.mark.parametrize(
    ("opinions", "master"),
    [
        (
            [
                SentinelView(1, *OLD, False),
                SentinelView(2, *NEW, False),
                SentinelView(1, *OLD, False),
            ],
            NEW,
        ),
        ([SentinelView(1, *OLD, False), SentinelView(2, *NEW, True)], None),
        ([SentinelView(2, *NEW, True), SentinelView(2, *NEW, False)], NEW),
        ([SentinelView(1, *OLD, True)], None),
        ([], None),
    ],
)
def test_the_newest_configuration_counts(
    opinions: list[SentinelView], master: tuple[str, int] | None
) -> None:
    assert elected(opinions) == master


def test_only_the_newest_configuration_counts_for_a_failover_in_progress() -> None:
    assert leaves([SentinelView(2, *OLD, False), SentinelView(2, *OLD, False, True)])
    assert not leaves([SentinelView(1, *OLD, False, True), SentinelView(2, *NEW, False)])


def test_a_new_connection_waits_for_the_end_of_a_failover(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    views = [
        SentinelView(1, *OLD, False, True),
        SentinelView(1, *OLD, False, True),
        SentinelView(2, *NEW, False),
    ]
    watchers = redis_clients.Watchers(parse("redis+sentinel://127.0.0.1:1/m"))
    monkeypatch.setattr(watchers, "_ask_sentinels", lambda: ([views.pop(0)], []))
    monkeypatch.setattr(redis_clients, "AGAIN_S", 0)
    assert watchers.discover_master("m") == NEW


def test_a_failover_that_does_not_end_is_waited_for_within_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watchers = redis_clients.Watchers(parse("redis+sentinel://127.0.0.1:1/m"))
    view = SentinelView(1, *OLD, False, True)
    monkeypatch.setattr(watchers, "_ask_sentinels", lambda: ([view], []))
    monkeypatch.setattr(sentinels, "HOLD_S", 0)
    assert watchers.discover_master("m") == OLD


def said(port: int, flags: str, named: int) -> SentinelView | None:
    rows = {"ip": "h", "port": str(port), "flags": flags, "config-epoch": "3"}
    state = [word.encode() for row in rows.items() for word in row]
    return view((state, [b"h", b"%d" % named]))


def test_a_dead_master_is_none_but_its_successor_is_while_the_failover_lasts() -> None:
    assert said(1, "master,o_down,failover_in_progress", 1) == SentinelView(3, "h", 1, True, True)
    assert said(1, "master,failover_in_progress", 1) == SentinelView(3, "h", 1, False, True)
    assert said(1, "master,o_down,failover_in_progress", 2) == SentinelView(3, "h", 2, False)
    assert said(1, "master", 1) == SentinelView(3, "h", 1, False)
    assert view((ValueError("no such master"), None)) is None


@dataclass
class FakeSentinel:
    """A Sentinel that names the given master, and publishes when that changes."""

    master: int
    epoch: int = 1
    port: int = 0
    listeners: list[asyncio.StreamWriter] = field(default_factory=list)
    both: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once a store and a notifier have subscribed."""
    refused: bytes = b""

    def switch(self, master: int) -> None:
        """Name another server as the master and publish the switch."""
        self.master = master
        self.epoch += 1
        self.publish("+switch-master", "m h 1 h 2")

    def publish(self, event: str, what: str) -> None:
        """Publish a message to all subscribers."""
        for writer in self.listeners:
            writer.write(_array("message", event, what))

    def reply(self, words: list[bytes]) -> bytes:
        """Return the reply to a command."""
        if words[0].upper() == self.refused:
            return b"-NOPERM %s\r\n" % self.refused
        address = ("127.0.0.1", str(self.master))
        match words[0].upper(), words[1].upper() if len(words) > 1 else b"":
            case b"SENTINEL", b"MASTER":
                rows = ("ip", address[0], "port", address[1], "flags", "master")
                return _array(*rows, "config-epoch", str(self.epoch))
            case b"SENTINEL", _:
                return _array(*address)
            case b"INFO", _:
                return b"$19\r\nredis_version:7.0.0\r\n"
            case b"CLIENT", b"ID":
                return b":1\r\n"
            case b"CONFIG", _:
                return b"-ERR unknown command 'CONFIG'\r\n"
            case b"SUBSCRIBE", _:
                return b"".join(_array("subscribe", word.decode()) for word in words[1:])
            case _:
                return b"+OK\r\n"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until it ends."""
        try:
            with contextlib.suppress(ConnectionResetError):
                await self._answer(reader, writer)
        finally:
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readline():
            words = []
            for _ in range(int(head[1:])):
                size = int((await reader.readline())[1:])
                words.append((await reader.readexactly(size + 2))[:-2])
            if words[0].upper() == b"SUBSCRIBE":
                self.listeners.append(writer)
                if len(self.listeners) == 2:
                    self.both.set()
            writer.write(self.reply(words))


def _array(*words: str) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(
        b"$%d\r\n%s\r\n" % (len(word), word.encode()) for word in words
    )


@dataclass
class Split:
    """Two servers that both take writes, as in a failover, and Sentinels that name the first."""

    ports: list[int]
    sentinels: tuple[FakeSentinel, FakeSentinel]
    old: "subprocess.Popen[str]"

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{each.port}" for each in self.sentinels)
        return f"redis+sentinel://{hosts}/m"

    async def promote(self) -> None:
        """Make the second server the master by one Sentinel; the other has not learned of it."""
        knows = self.sentinels[1]
        await knows.both.wait()
        knows.switch(self.ports[1])


@pytest.fixture
async def split() -> AsyncIterator[Split]:
    ports = free_ports(2)
    watching = FakeSentinel(ports[0]), FakeSentinel(ports[0])
    with tempfile.TemporaryDirectory(prefix="kv-") as directory, contextlib.ExitStack() as stack:
        old, _ = [start(stack, directory, str(port), [f"port {port}"]) for port in ports]
        async with contextlib.AsyncExitStack() as servers:
            for each in watching:
                server = await asyncio.start_server(each.serve, "127.0.0.1", 0)
                servers.callback(server.close)
                each.port = server.sockets[0].getsockname()[1]
            yield Split(ports, watching, old)


async def length(store: AsyncStore) -> int:
    """Push one value once the store has a server; return the list's length."""
    while True:
        try:
            return (await store.run(push(b"x"))).length
        except StoreUnavailable:
            await store.ready()


async def test_a_running_master_is_left_when_one_sentinel_names_another(split: Split) -> None:
    async with (
        asyncio.timeout(30),
        await AsyncStore.connect(split.url) as store,
        await Notifier.connect(split.url) as notifier,
        notifier.listen(["a"]) as subscription,
    ):
        assert [await length(store) for _ in range(3)] == [1, 2, 3]
        await split.promote()
        while await length(store) > 3:
            pass
        while (await store.command("PUBLISH", "a", "x")) == 0:
            await subscription.wait(0.01)


@pytest.mark.parametrize("ending", ["+switch-master", "-failover-abort-slave-timeout", ""])
async def test_nothing_is_written_between_the_beginning_of_a_failover_and_its_end(
    split: Split, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sentinel_watch, "HOLD_S", 0.05 if not ending else 1000)
    begun = "slave h:2 h 2 @ {} h 1"
    async with (
        asyncio.timeout(30),
        await AsyncStore.connect(split.url) as store,
        await Notifier.connect(split.url),
    ):
        assert await length(store) == 1
        sentinel = split.sentinels[1]
        await sentinel.both.wait()
        sentinel.publish(sentinel_watch.BEGINNING, begun.format("another"))
        sentinel.publish(sentinel_watch.BEGINNING, begun.format("m"))
        pushing = asyncio.create_task(push_until_refused(store))
        await disconnected(store)
        before = (await asyncio.to_thread(old_length, split)).length
        if ending == "+switch-master":
            sentinel.switch(split.ports[1])
        elif ending:
            sentinel.publish(ending, "master m h 1")
        await pushing
        assert await length(store) == (1 if ending == "+switch-master" else before + 1)


async def test_messages_about_other_masters_end_no_failover(
    split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sentinel_watch, "HOLD_S", 1000)
    async with (
        asyncio.timeout(30),
        await AsyncStore.connect(split.url) as store,
        await Notifier.connect(split.url),
    ):
        sentinel = split.sentinels[1]
        await sentinel.both.wait()
        await length(store)
        sentinel.publish(sentinel_watch.BEGINNING, "slave h:2 h 2 @ m h 1")
        await disconnected(store)
        sentinel.publish("+promoted-slave", "slave h:4 h 4 @ another h 3")
        sentinel.publish("+switch-master", "another h 3 h 4")
        sentinel.publish("-failover-abort-slave-timeout", "master another h 3")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await store.ready()
        sentinel.publish("+promoted-slave", "slave h:2 h 2 @ m h 1")
        await store.ready()


@pytest.mark.parametrize("refused", [b"INFO", b"SUBSCRIBE"])
async def test_a_sentinel_that_refuses_a_subscription_is_in_the_log(
    split: Split, refused: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    split.sentinels[0].refused = refused
    async with asyncio.timeout(30), await AsyncStore.connect(split.url) as store:
        while not caplog.messages:
            await length(store)
    (message,) = caplog.messages
    assert "subscription failed" in message
    assert f"NOPERM {refused.decode()}" in message


async def push_until_refused(store: AsyncStore) -> None:
    """Push values until the store leaves the master."""
    with pytest.raises(StoreUnavailable, match="making another server the master"):
        while True:
            await store.run(push(b"x"))


def old_length(split: Split) -> Counted:
    """Push one value at the old master; return the list's length."""
    with SyncStore.connect(f"redis://127.0.0.1:{split.ports[0]}") as store:
        return store.run(push(b"x"))


async def test_pending_calls_to_a_stopped_master_fail_at_the_switch(
    split: Split,
) -> None:
    async with (
        asyncio.timeout(30),
        await AsyncStore.connect(split.url, timeout_s=1000) as store,
        await Notifier.connect(split.url),
    ):
        split.old.send_signal(signal.SIGSTOP)
        try:
            unanswered = store.submit(push(b"x"))
            await split.promote()
            with pytest.raises(StoreUnavailable, match=r"Sentinels name .* as master"):
                await unanswered
            assert await length(store) == 1
        finally:
            split.old.send_signal(signal.SIGCONT)


async def test_a_new_connection_uses_the_sentinel_with_the_newest_configuration(
    split: Split,
) -> None:
    with SyncStore.connect(split.url) as store:
        assert (await asyncio.to_thread(store.run, push(b"x"))).length == 1
    split.sentinels[1].switch(split.ports[1])
    with SyncStore.connect(split.url) as store:
        assert (await asyncio.to_thread(store.run, push(b"x"))).length == 1
