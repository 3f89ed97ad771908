"""Check the stores behind Sentinel: they find the master, also after a failover."""

import asyncio
from collections.abc import Iterator

import pytest

from korvet.store.async_store import AsyncStore
from korvet.store.errors import RedisUnreachable, StoreUnavailable
from korvet.store.notifications import Notifier
from korvet.store.sync_store import SyncStore
from tests.store.cluster_topology import until
from tests.store.scripts import push
from tests.store.sentinel_topology import Watched, watching
from tests.support.ports import free_port


@pytest.fixture
def watched() -> Iterator[Watched]:
    with watching() as made:
        yield made


def answers(store: SyncStore) -> bool:
    """Return whether the Sentinel names a master that answers.

    On a busy machine the Sentinel may name none for some time."""
    try:
        return bool(store.command("PING") == b"PONG")
    except StoreUnavailable:
        return False


async def test_the_master_is_found_and_followed(watched: Watched) -> None:
    async with (
        await AsyncStore.connect(watched.url) as store,
        await Notifier.connect(watched.url) as notifier,
        notifier.listen(["a"]) as subscription,
    ):
        assert (await store.run(push(b"before"))).length == 1
        with SyncStore.connect(watched.url) as sync:
            until(lambda: answers(sync))
            assert sync.run(push(b"before")).length == 2
        until(lambda: watched.ask(watched.replica, "LLEN", "list") == 2)
        watched.old.kill()
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
        with SyncStore.connect(watched.url) as sync:
            until(lambda: answers(sync))
            assert sync.run(push(b"after")).length == reply.length + 1
        async with asyncio.timeout(30):
            while not watched.ask(watched.replica, "PUBLISH", "a", "x"):
                await subscription.wait(0.01)
            assert await subscription.wait(30)


async def test_a_master_that_no_sentinel_watches_is_an_error() -> None:
    port = free_port()
    with pytest.raises(RedisUnreachable, match="names a master 'themaster'"):
        await AsyncStore.connect(f"redis+sentinel://127.0.0.1:{port}/themaster", connect_s=1)
