"""Where to connect right now: asked before every connection, so that a failover is followed."""

import itertools
from collections.abc import Awaitable, Callable
from typing import Any

from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from korvet.store.address import Address, Location
from korvet.store.errors import RedisUnreachable

Find = Callable[[], Awaitable[Address]]


def finder(location: Location, connect_s: float) -> Find:
    """A function that names the server to connect to: the one there is, the master that Sentinels
    know, or the nodes of a cluster in turn."""
    if location.kind == "sentinel":

        async def ask_sentinels() -> Address:
            return await _master(location, connect_s)

        return ask_sentinels
    turn = itertools.cycle(location.seeds)

    async def next_seed() -> Address:
        return next(turn)

    return next_seed


async def _master(location: Location, connect_s: float) -> Address:
    first = location.seeds[0]
    options: dict[str, Any] = {
        "socket_timeout": connect_s,
        "username": location.sentinel_username,
        "password": location.sentinel_password,
        "retry": Retry(NoBackoff(), 0),
    }
    if first.tls is not None:
        options["ssl"] = True
        options |= {name: value for name, value in first.options.items() if name[:4] == "ssl_"}
    sentinel = Sentinel(  # type: ignore[no-untyped-call]
        [(seed.host, seed.port) for seed in location.seeds], sentinel_kwargs=options
    )
    try:
        host, port = await sentinel.discover_master(location.master)
    except (RedisError, OSError) as error:
        raise RedisUnreachable(
            f"no Sentinel at {location} names a master {location.master!r}: {error}"
        ) from error
    finally:
        for client in sentinel.sentinels:
            await client.aclose()
    return first.at(host.decode() if isinstance(host, bytes) else host, port)
