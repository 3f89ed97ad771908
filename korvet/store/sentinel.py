"""The address to connect to, found before every connection, so that a failover is followed.

Rules of the master according to the Sentinels
- Sentinels learn of a failover one after another: the one with the greatest configuration epoch
  knows most.
- All are asked at once. After the first answer the others have GRACE_S.
- From the start of a failover until one of them names another server there is no master.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from korvet.store.address import Address, Location
from korvet.store.errors import RedisUnreachable

GRACE_S = 0.3
HOLD_S = 5.0
"""Seconds that a failover may block callers that ask for the master: it may be given up."""
DOWN = frozenset({"s_down", "o_down"})
FAILING_OVER = "failover_in_progress"

Find = Callable[[], Awaitable[Address]]
RawView = tuple[Any, Any]
"""The raw replies to the two QUESTIONS."""
QUESTIONS = (("SENTINEL", "MASTER"), ("SENTINEL", "GET-MASTER-ADDR-BY-NAME"))
"""The second names the new master from its promotion on, the first only at the end."""


@dataclass(frozen=True)
class SentinelView:
    """A Sentinel's view: the master, its configuration epoch, and whether the Sentinel misses it.

    `leaves`: a failover runs, and the new master has no name yet.
    """

    epoch: int
    host: str
    port: int
    down: bool
    leaves: bool = False


def view(raw: RawView) -> SentinelView | None:
    """Parse the replies to the two questions; None if they say nothing."""
    state, address = raw
    if not isinstance(state, list) or not isinstance(address, list):
        return None
    rows = {
        key.decode(): value.decode() for key, value in zip(state[::2], state[1::2], strict=True)
    }
    host, port = address[0].decode(), int(address[1])
    same = (rows["ip"], rows["port"]) == (host, str(port))
    flags = set(rows["flags"].split(",")) if same else set()
    down, leaves = not DOWN.isdisjoint(flags), FAILING_OVER in flags
    return SentinelView(int(rows["config-epoch"]), host, port, down, leaves)


def elected(views: Iterable[SentinelView]) -> tuple[str, int] | None:
    """Return the master of a view with the greatest epoch that does not miss it."""
    return next(((each.host, each.port) for each in _newest(views) if not each.down), None)


def leaves(views: Iterable[SentinelView]) -> bool:
    """Return whether a view with the greatest epoch shows a failover in progress."""
    return any(each.leaves for each in _newest(views))


def _newest(views: Iterable[SentinelView]) -> list[SentinelView]:
    known = list(views)
    newest = max((each.epoch for each in known), default=0)
    return [each for each in known if each.epoch == newest]


def entry(location: Location, connect_s: float) -> dict[str, Any]:
    """Return the options for redis-py's clients of the Sentinels except host and port."""
    first = location.seeds[0]
    options: dict[str, Any] = {
        "socket_timeout": connect_s,
        "socket_connect_timeout": connect_s,
        "username": location.sentinel_username,
        "password": location.sentinel_password,
        "protocol": 2,
    }
    if first.tls is not None:
        options["ssl"] = True
        options |= {name: value for name, value in first.options.items() if name[:4] == "ssl_"}
    return options


def no_master(location: Location, why: Sequence[BaseException]) -> RedisUnreachable:
    """Return the error for the case that no Sentinel names a master."""
    reason = f": {why[0]}" if why else ""
    return RedisUnreachable(f"no Sentinel at {location} names a master {location.master!r}{reason}")


async def master(location: Location, connect_s: float) -> Address:
    """Return the master's address. Raises RedisUnreachable."""
    asked = [asyncio.create_task(_ask(location, seed, connect_s)) for seed in location.seeds]
    try:
        await _first(asked)
        await asyncio.wait(asked, timeout=GRACE_S)
    finally:
        for task in asked:
            task.cancel()
        await asyncio.wait(asked)
    done = [task for task in asked if not task.cancelled()]
    failures = [error for task in done if (error := task.exception()) is not None]
    found = [view(task.result()) for task in done if task.exception() is None]
    named = elected(each for each in found if each is not None)
    if named is None:
        raise no_master(location, failures)
    return location.seeds[0].at(*named)


async def _first(asked: Sequence["asyncio.Task[RawView]"]) -> None:
    """Wait until one of them has answered, or none will."""
    for task in asyncio.as_completed(asked):
        try:
            await task
        except (RedisError, OSError):
            continue
        return


async def _ask(location: Location, seed: Address, connect_s: float) -> RawView:
    client = Redis(
        host=seed.host, port=seed.port, retry=Retry(NoBackoff(), 0), **entry(location, connect_s)
    )
    client.response_callbacks = {}
    async with client, client.pipeline(transaction=False) as pipe:
        for question in QUESTIONS:
            pipe.execute_command(*question, location.master)
        state, address = await pipe.execute(raise_on_error=False)
    return state, address


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
        return lambda: master(location, connect_s)
    turn = itertools.cycle(location.seeds)

    async def next_seed() -> Address:
        return next(turn)

    return next_seed
