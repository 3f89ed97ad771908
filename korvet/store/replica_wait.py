"""Waiting until replicas, or the disk, have what was written.

Rules
- WAIT and WAITAOF hold up their whole connection: each waiting caller has one to itself, from a
  pool, to the very server that took the write.
- They cover what their own connection wrote. So each begins with a write that leaves nothing: by
  then the server has everything that was answered before. A PUBLISH will not do: on a cluster it
  goes to replicas by another way, and from Redis 7.2 on nothing is waited for then.
- They say nothing of what another server took: the caller tells which run of which server it was.
- A server that the store has left is not waited for: another is the master by now, and what its
  replicas have is worth nothing. It may live on for long without any.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from time import monotonic
from typing import Any

from korvet.keys import replica_wait_key
from korvet.scripts.call import Arg
from korvet.store.address import Address
from korvet.store.async_store import AsyncStore, let_go
from korvet.store.connection import PendingCommand, PipelinedConnection
from korvet.store.errors import CommandFailed, StoreUnavailable
from korvet.store.reconnect import ConnectOptions, Listener, ReconnectingConnection, ask, parse_info

MOST = 32
"""Callers that wait at the same time; more of them queue."""
LONGEST_S = 60.0
FRESH_S = 1.0
LOOK_S = 0.1
OURS = b"korvet"
"""What a server that Korvet has started is called in its configuration."""
OWNER_SYNCS = [b"appendfsync", b"no"]


class ReplicaWait:
    """Asks the servers behind a store how many copies there are."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self._idle: dict[str, list[ReconnectingConnection]] = defaultdict(list)
        self._room = asyncio.Semaphore(MOST)
        self._known: dict[str, tuple[float, int]] = {}

    async def replicas(self, key: str) -> int:
        """How many replicas the server of `key` has online; at most a second old."""
        place = self._store.place_of(key)
        until, count = self._known.get(str(place), (0.0, 0))
        if monotonic() < until:
            return count
        run = self._store.run_of(key)
        async with self._room, self._connected(place) as (link, _):
            rows = parse_info(await self._ask(key, run, link, "INFO", "replication"))
        count = sum(
            "state=online" in value
            for name, value in rows.items()
            if name.startswith("slave") and name[5:].isdigit()
        )
        self._known[str(place)] = (monotonic() + FRESH_S, count)
        return count

    async def wait(
        self, key: str, *, run: str, replicas: int, fsync: bool, timeout_s: float
    ) -> bool:
        """Whether so many replicas, and the server's own disk when `fsync`, have what was answered
        before this call, within the time; `run` is the store's `run_of` the key before that."""
        limit_ms = max(1, int(min(timeout_s, LONGEST_S) * 1000))
        async with self._room, self._connected(self._store.place_of(key)) as (link, here):
            if here != run:
                return False
            if fsync:
                await _let_it_sync(link)
            # Behind one another in one burst: the wait is for what stands before it.
            written = asyncio.get_running_loop().create_future()
            link.send(PendingCommand(written, command=("SET", replica_wait_key(key), "", "PX", 1)))
            let_go(written)
            words = ("WAITAOF", 1, replicas) if fsync else ("WAIT", replicas)
            reply = await self._ask(key, run, link, *words, limit_ms)
            if not fsync:
                reply = [1, reply]
            await written
        enough = bool(reply[0] >= 1 and reply[1] >= replicas)
        return enough and self._store.run_of(key) == run

    async def _ask(self, key: str, run: str, link: PipelinedConnection, *command: Arg) -> Any:
        """The reply, unless the store leaves that run of the key's server meanwhile."""
        asked = asyncio.ensure_future(ask(link, *command))
        try:
            while not asked.done() and self._store.run_of(key) == run:
                await asyncio.wait([asked], timeout=LOOK_S)
            if not asked.done():
                raise StoreUnavailable("its server is not the master any more")
            return asked.result()
        finally:
            asked.cancel()

    @asynccontextmanager
    async def _connected(self, place: Address) -> AsyncIterator[tuple[PipelinedConnection, str]]:
        """A connection for one caller alone, and which run of which server it leads to."""
        idle = self._idle[str(place)]
        lane = idle.pop() if idle else _lane(place)
        try:
            await lane.open()
            assert isinstance(lane.link, PipelinedConnection)
            yield lane.link, lane.run
        except BaseException:
            await lane.close()
            raise
        idle.append(lane)

    async def close(self) -> None:
        """All connections are gone."""
        for lanes in self._idle.values():
            for lane in lanes:
                await lane.close()


async def _let_it_sync(link: PipelinedConnection) -> None:
    """A server of ours, which its owner syncs, from now on does so by itself: WAITAOF needs it."""
    with suppress(CommandFailed):  # not everybody may ask
        told = await ask(link, "CONFIG", "GET", "syslog-ident")
        if told[1:] == [OURS] and await ask(link, "CONFIG", "GET", "appendfsync") == OWNER_SYNCS:
            await ask(link, "CONFIG", "SET", "appendfsync", "everysec")


def _lane(place: Address) -> ReconnectingConnection:
    async def find() -> Address:
        return place

    return ReconnectingConnection(
        find, ConnectOptions("korvet-copies", timeout_s=2 * LONGEST_S), Listener()
    )
