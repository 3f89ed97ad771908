"""Where to connect right now: asked before every connection, so that a failover is followed."""

import itertools
from collections.abc import Awaitable, Callable

from korvet.store import sentinel
from korvet.store.address import Address, Location

Find = Callable[[], Awaitable[Address]]


def finder(location: Location, connect_s: float) -> Find:
    """A function that names the server to connect to: the one there is, the master that Sentinels
    know, or the nodes of a cluster in turn."""
    if location.kind == "sentinel":

        async def ask_sentinels() -> Address:
            return await sentinel.master(location, connect_s)

        return ask_sentinels
    turn = itertools.cycle(location.seeds)

    async def next_seed() -> Address:
        return next(turn)

    return next_seed
