"""Extra durability: wait for replicas (WAIT) and for fsync (WAITAOF).

Rules
- WAIT and WAITAOF block their connection: each caller has a separate one from a pool, to the server
  that took the write.
- They cover only writes of the same connection. So each begins with a write without effect: by
  then the server has everything that was answered before. PUBLISH does not work: on a cluster it
  reaches replicas another way, and since Redis 7.2 the server waits for nothing after it.
- They say nothing about writes on another server: the caller passes the run id of the server.
- The wait ends if the store leaves the server: another one is the master by then, and what the old
  one's replicas have does not count. The old server may live on without replicas.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from time import monotonic
from typing import Any

from korvet.scripts.call import Arg
from korvet.scripts.keys import write_before_wait
from korvet.store.address import Address
from korvet.store.async_store import AsyncStore, ignore_result
from korvet.store.connection import PendingCommand, PipelinedConnection
from korvet.store.errors import CommandFailed, StoreUnavailable
from korvet.store.handshake import ConnectOptions, ask, parse_info
from korvet.store.reconnect import ConnectionEvents, ReconnectingConnection
from korvet.store.sentinel_lookup import always

MAX_WAITING = 32
"""Callers that wait at the same time; more of them queue."""
LONGEST_S = 60.0
"""Max seconds of a wait."""
FRESH_S = 1.0
"""Seconds for which a number of replicas is cached."""
CHECK_S = 0.1
"""Seconds between two checks whether the store has left the server."""
OURS = b"korvet"
"""The name that Korvet gives in the configuration of a server it starts."""
OWNER_SYNCS = [b"appendfsync", b"no"]


class ReplicaWait:
    """Waits for the replicas and the disk of the servers of a store."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self._idle: dict[str, list[ReconnectingConnection]] = defaultdict(list)
        self._room = asyncio.Semaphore(MAX_WAITING)
        self._known: dict[str, tuple[float, int]] = {}

    async def replicas(self, key: str) -> int:
        """Return how many replicas of the key's server are online, at most one second old."""
        address = self._store.address_of(key)
        until, count = self._known.get(str(address), (0.0, 0))
        if monotonic() < until:
            return count
        run = self._store.run_of(key)
        async with self._room, self._connected(address) as (pipeline, _):
            rows = parse_info(await self._ask(key, run, pipeline, "INFO", "replication"))
        count = sum(
            "state=online" in value
            for name, value in rows.items()
            if name.startswith("slave") and name[5:].isdigit()
        )
        self._known[str(address)] = (monotonic() + FRESH_S, count)
        return count

    async def wait(
        self, key: str, *, run: str, replicas: int, fsync: bool, timeout_s: float
    ) -> bool:
        """Wait for replicas, and for the server's disk if `fsync`.

        Returns whether they have everything that was answered before this call, within the time.
        `run` is the store's `run_of` the key before that.
        """
        limit_ms = max(1, int(min(timeout_s, LONGEST_S) * 1000))
        async with self._room, self._connected(self._store.address_of(key)) as (pipeline, here):
            if here != run:
                return False
            if fsync:
                await _let_server_fsync(pipeline)
            # One write: WAIT covers the command before it.
            written = asyncio.get_running_loop().create_future()
            pipeline.send(PendingCommand(written, command=write_before_wait(key)))
            ignore_result(written)
            words = ("WAITAOF", 1, replicas) if fsync else ("WAIT", replicas)
            reply = await self._ask(key, run, pipeline, *words, limit_ms)
            if not fsync:
                reply = [1, reply]
            await written
        enough = bool(reply[0] >= 1 and reply[1] >= replicas)
        return enough and self._store.run_of(key) == run

    async def _ask(self, key: str, run: str, pipeline: PipelinedConnection, *command: Arg) -> Any:
        """Return the reply, unless the store leaves that run of the key's server meanwhile."""
        asked = asyncio.ensure_future(ask(pipeline, *command))
        try:
            while not asked.done() and self._store.run_of(key) == run:
                await asyncio.wait([asked], timeout=CHECK_S)
            if not asked.done():
                raise StoreUnavailable("the server is no longer the master")
            return asked.result()
        finally:
            asked.cancel()

    @asynccontextmanager
    async def _connected(self, address: Address) -> AsyncIterator[tuple[PipelinedConnection, str]]:
        """Yield a connection for one caller, and the run id of its server."""
        idle = self._idle[str(address)]
        connection = idle.pop() if idle else _connection(address)
        try:
            await connection.open()
            assert isinstance(connection.pipeline, PipelinedConnection)
            yield connection.pipeline, connection.run
        except BaseException:
            await connection.close()
            raise
        idle.append(connection)

    async def close(self) -> None:
        """Close all connections."""
        for connections in self._idle.values():
            for connection in connections:
                await connection.close()


async def _let_server_fsync(pipeline: PipelinedConnection) -> None:
    """Let a server that Korvet started fsync by itself from now on: WAITAOF needs it."""
    with suppress(CommandFailed):  # the user may lack the right to ask
        views = await ask(pipeline, "CONFIG", "GET", "syslog-ident")
        if (
            views[1:] == [OURS]
            and await ask(pipeline, "CONFIG", "GET", "appendfsync") == OWNER_SYNCS
        ):
            await ask(pipeline, "CONFIG", "SET", "appendfsync", "everysec")


def _connection(address: Address) -> ReconnectingConnection:
    options = ConnectOptions("korvet-replica-wait", timeout_s=2 * LONGEST_S)
    return ReconnectingConnection(always(address), options, ConnectionEvents())
