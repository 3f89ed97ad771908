"""The library over the Redis that a command's options select."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from korvet.cli import redis_target
from korvet.cli.target import Target
from korvet.library.async_korvet import AsyncKorvet
from korvet.store.async_store import AsyncStore

T = TypeVar("T")


class CommandLog(AsyncKorvet):
    """The log a command works on, and the URL of its Redis."""

    def __init__(self, url: str, store: AsyncStore, target: Target) -> None:
        super().__init__(namespace=target.namespace, settings=target.settings, store=store)
        self.url = url


def on_log(
    work: Callable[[CommandLog], Awaitable[T]], target: Target, *, create: bool = False
) -> T:
    """Run `work` on the target's log and return its result.

    With `create` a missing data directory is made.
    """

    async def connected(url: str) -> T:
        store = await AsyncStore.connect(url, client_name="korvet-cli")
        async with CommandLog(url, store, target) as log:
            return await work(log)

    with redis_target.url(target, create=create) as url:
        return asyncio.run(connected(url))
