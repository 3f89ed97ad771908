"""The library over the Redis that a command's options select."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from korvet.cli import redis_target
from korvet.cli.target import Target
from korvet.library.async_korvet import AsyncKorvet
from korvet.log.accept_server import accept_by
from korvet.scripts.keys import Keys
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
        connect = partial(AsyncStore.connect, url, client_name="korvet-cli")
        # A server that was started for this command has what its files had.
        accept = accept_by(Keys(target.namespace), connect) if is_running else None
        store = await connect(accept_server=accept)
        async with CommandLog(url, store, target) as log:
            return await work(log)

    is_running = redis_target.running(target) is not None
    with redis_target.url(target, create=create) as url:
        return asyncio.run(connected(url))
