"""Check Notifier on real servers: a subscription misses no message published after its start."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from korvet.scripts.call import Arg
from korvet.store.async_store import AsyncStore
from korvet.store.connection import PubSubConnection
from korvet.store.errors import RedisUnreachable
from korvet.store.notifications import Notifier
from tests.store.proxy import proxy
from tests.support.redis_servers import TestServer

LONG = 30.0


@asynccontextmanager
async def connect(running: TestServer) -> AsyncIterator[tuple[Notifier, AsyncStore]]:
    async with (
        await Notifier.connect(running.url) as notifier,
        await AsyncStore.connect(running.url) as store,
    ):
        yield notifier, store


async def test_a_message_notifies_the_subscription_of_its_channel_only(
    redis_server: TestServer,
) -> None:
    async with (
        connect(redis_server) as (notifier, store),
        notifier.listen(["a"]) as a,
        notifier.listen(["b", "c"]) as b,
    ):
        await store.command("PUBLISH", "a", "x")
        assert await a.wait(LONG)
        assert not await b.wait(0)
        await store.command("PUBLISH", "c", "x")
        assert await b.wait(LONG)


async def test_what_is_published_before_waiting_begins_is_not_missed(
    redis_server: TestServer,
) -> None:
    async with connect(redis_server) as (notifier, store):
        for _ in range(50):
            async with notifier.listen(["a"]) as subscription:
                assert await store.command("PUBLISH", "a", "x") == 1
                assert await subscription.wait(LONG)


async def test_a_subscription_is_notified_at_once_of_messages_since_a_count(
    redis_server: TestServer,
) -> None:
    async with connect(redis_server) as (notifier, store), notifier.listen(["a", "b"]) as first:
        message_count = notifier.message_count
        await store.command("PUBLISH", "b", "x")
        assert await first.wait(LONG) == {"b"}
        async with notifier.listen(["a", "b", "new"], message_count) as subscription:
            assert await subscription.wait(0) == {"b", "new"}
        async with notifier.listen(["a", "b", "new"], notifier.message_count) as subscription:
            assert not await subscription.wait(0)
            subscription.notify()
            assert await subscription.wait(0) == {"a", "b", "new"}


async def test_a_watch_is_notified_once_for_each_channel_that_was_added(
    redis_server: TestServer,
) -> None:
    async with connect(redis_server) as (notifier, store), notifier.listen(["a"]) as other:
        watch = notifier.watch_each()
        await watch.add(["a", "b", "c"])
        watch.remove(["c"])
        for channel in ("b", "c", "a", "a"):
            await store.command("PUBLISH", channel, "x")
            assert channel != "a" or await other.wait(LONG)
        assert watch.take() == {"a", "b"}
        assert not notifier._subscriptions.keys() & {"b", "c"}
        await watch.add(["b"])
        await store.command("PUBLISH", "a", "x")
        await store.command("PUBLISH", "b", "x")
        assert await watch.wait(LONG) == {"b"}


async def test_a_wait_without_a_notification_returns_nothing(redis_server: TestServer) -> None:
    async with connect(redis_server) as (notifier, _), notifier.listen(["a"]) as subscription:
        assert not await subscription.wait(0.01)
        assert not await subscription.wait(0)


async def test_every_subscription_of_a_channel_is_notified(redis_server: TestServer) -> None:
    async with connect(redis_server) as (notifier, store):
        subscriptions = [notifier.listen(["a", f"own-{n}"]) for n in range(20)]
        await asyncio.gather(*(subscription.__aenter__() for subscription in subscriptions))
        await store.command("PUBLISH", "a", "x")
        assert all(
            await asyncio.gather(*(subscription.wait(LONG) for subscription in subscriptions))
        )
        for subscription in subscriptions:
            await subscription.__aexit__()


async def test_a_channel_stays_subscribed_for_the_linger_time(redis_server: TestServer) -> None:
    async with (
        await Notifier.connect(redis_server.url, linger_s=0.02) as notifier,
        await AsyncStore.connect(redis_server.url) as store,
    ):
        async with notifier.listen(["a"]):
            pass
        assert await store.command("PUBSUB", "NUMSUB", "a") == [b"a", 1]
        async with asyncio.timeout(10):
            while await store.command("PUBSUB", "NUMSUB", "a") != [b"a", 0]:
                pass
        async with notifier.listen(["a"]) as subscription:
            await store.command("PUBLISH", "a", "x")
            assert await subscription.wait(LONG)


async def test_a_channel_is_not_unsubscribed_before_redis_has_confirmed_it(
    redis_server: TestServer,
) -> None:
    async with (
        proxy(redis_server.url) as wire,
        await Notifier.connect(wire.url, linger_s=0) as notifier,
        await AsyncStore.connect(redis_server.url) as store,
    ):
        wire.hold()
        gone = asyncio.create_task(notifier.listen(["a"]).__aenter__())
        await asyncio.sleep(0)
        gone.cancel()
        for _ in range(5):  # each iteration has a sweep
            await asyncio.sleep(0)
        opening = asyncio.create_task(notifier.listen(["a"]).__aenter__())
        await asyncio.sleep(0)
        wire.release()
        subscription = await opening
        assert await store.command("PUBLISH", "a", "x") == 1
        assert await subscription.wait(LONG)


async def test_a_watcher_gets_every_message(redis_server: TestServer) -> None:
    message_count: list[bytes] = []
    async with connect(redis_server) as (notifier, store):
        await notifier.watch("topics", message_count.append)
        async with notifier.listen(["topics"]) as subscription:
            for n in range(3):
                await store.command("PUBLISH", "topics", n)
            while len(message_count) < 3:
                await subscription.wait(LONG)
    assert message_count == [b"0", b"1", b"2"]


async def test_appends_of_this_broker_notify_without_a_round_trip(redis_server: TestServer) -> None:
    async with connect(redis_server) as (notifier, _), notifier.listen(["a"]) as subscription:
        notifier.notify("a")
        notifier.notify("unknown")
        assert await subscription.wait(0)


async def test_a_reconnect_notifies_once_redis_has_subscribed_again(
    redis_server: TestServer,
) -> None:
    missed: list[bytes] = []
    async with (
        proxy(redis_server.url) as wire,
        await Notifier.connect(wire.url) as notifier,
        await AsyncStore.connect(redis_server.url) as store,
    ):
        await notifier.watch("topics", missed.append)
        async with notifier.listen(["a"]) as subscription:
            wire.cut()
            assert await subscription.wait(LONG)
            assert wire.connections == 2
            assert await store.command("PUBLISH", "a", "x") == 1
            assert await subscription.wait(LONG)
            assert missed == [b""]


async def test_a_reconnect_does_not_notify_before_redis_has_subscribed_again(
    redis_server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: asyncio.Future[tuple[PubSubConnection, tuple[Arg, ...]]] = (
        asyncio.get_running_loop().create_future()
    )
    say = PubSubConnection.say
    async with (
        proxy(redis_server.url) as wire,
        await Notifier.connect(wire.url) as notifier,
        notifier.listen(["a"]) as subscription,
    ):
        monkeypatch.setattr(
            PubSubConnection,
            "say",
            lambda connection, *command: kept.set_result((connection, command)),
        )
        wire.cut()
        connection, command = await asyncio.wait_for(kept, LONG)
        assert not await subscription.wait(0), "a read now may miss the next message"
        monkeypatch.undo()
        say(connection, *command)
        assert await subscription.wait(LONG) == {"a"}


async def test_a_subscription_begun_while_the_connection_is_down_does_not_hang(
    redis_server: TestServer,
) -> None:
    async with proxy(redis_server.url) as wire, await Notifier.connect(wire.url) as notifier:
        wire.hold()
        opening = asyncio.create_task(notifier.listen(["a"]).__aenter__())
        await asyncio.sleep(0)
        wire.cut()
        async with asyncio.timeout(10):
            subscription = await opening
            assert await subscription.wait(LONG)


async def test_a_connection_to_a_silent_server_is_closed(redis_server: TestServer) -> None:
    async with (
        proxy(redis_server.url) as wire,
        await Notifier.connect(wire.url, timeout_s=0.05) as notifier,
        notifier.listen(["a"]) as subscription,
    ):
        wire.hold()
        while wire.connections < 2:
            await subscription.wait(0.01)
        wire.release()
        assert await subscription.wait(LONG)


async def test_an_address_without_a_server_is_an_error() -> None:
    with pytest.raises(RedisUnreachable, match="no connection to Redis"):
        await Notifier.connect("unix:///nowhere/s")
