"""The address to connect to, found before every connection, so that a failover is followed."""

import itertools
from collections.abc import Awaitable, Callable

from korvet.store import sentinel
from korvet.store.address import Address, Location

Find = Callable[[], Awaitable[Address]]


def always(address: Address) -> Find:
    """Return a function that finds that server."""

    async def find() -> Address:
        return address

    return find


def finder(location: Location, connect_s: float) -> Find:
    """Return a function that finds the server to connect to.

    That is the only server, the master that Sentinels name, or the nodes of a cluster in turn.
    """
    if location.kind == "sentinel":
        return lambda: sentinel.master(location, connect_s)
    turn = itertools.cycle(location.seeds)

    async def next_seed() -> Address:
        return next(turn)

    return next_seed
