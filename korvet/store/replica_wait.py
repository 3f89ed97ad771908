"""Extra durability: wait for replicas (WAIT) and for fsync (WAITAOF).

Rules
- WAIT and WAITAOF block their connection: each round has a separate one from a pool, to the server
  that took the write.
- They cover only writes of the same connection. So each begins with a write without effect: by
  then the server has everything that was answered before. PUBLISH does not work: on a cluster it
  reaches replicas another way, and since Redis 7.2 the server waits for nothing after it.
- They say nothing about writes on another server: the caller passes the run id of the server.
- The wait ends if the store leaves the server: another one is the master by then, and what the old
  one's replicas have does not count. The old server may live on without replicas.
- If a master moves the slot to another, MIGRATE takes the write there: the wait continues at the
  new master, once that owns the slot.
- Callers share a round (group commit): those that come before it is sent are in it. While one is in
  flight, the next is sent after a part of the time that the last one took.
- The embedded server syncs nothing itself: the round syncs its file. A write after that proves that
  no other sync has failed, which refuses writes (`disk`).
"""

import asyncio
import os
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Any, TypeAlias

from korvet.base.synced_files import IDENT, SyncedFiles
from korvet.scripts.call import Arg
from korvet.scripts.keys import write_before_wait
from korvet.store.address import Address
from korvet.store.async_store import AsyncStore
from korvet.store.connection import PipelinedConnection
from korvet.store.errors import CommandFailed, StoreUnavailable
from korvet.store.handshake import ConnectOptions, ask, online_replicas, parse_info
from korvet.store.reconnect import ConnectionEvents, ReconnectingConnection
from korvet.store.sentinel import always
from korvet.store.slots import Redirect, parse_redirect

IN_FLIGHT = 16
"""Rounds in flight at a server, for the same replicas and fsync."""
PAUSE_S = 0.001
"""Least seconds between two rounds in flight."""
LONGEST_S = 60.0
"""Max seconds of a wait."""
FRESH_S = 1.0
"""Seconds for which a number of replicas is cached."""
CHECK_S = 0.1
"""Seconds between two checks whether the store has left the server, or a slot has moved."""
LONGEST_MOVE_S = 2.0
"""Max seconds for the server's answer whether it has moved a slot."""

Requirement: TypeAlias = tuple[int, bool]
"""Replicas, and whether the append-only file is on disk."""


class _Round:
    """A WAIT or WAITAOF, or a sync of the embedded server's file."""

    task: asyncio.Task[bool]

    def __init__(self) -> None:
        self.callers = 0
        self.limit_s = 0.0


class _Queue:
    """The rounds of one requirement at one server."""

    def __init__(self) -> None:
        self.next: _Round | None = None
        """The round that is not sent yet, which callers may join."""
        self._in_flight = 0
        self._sent_at = self._took_s = 0.0
        self._ended = asyncio.Event()

    @asynccontextmanager
    async def turn(self, limit: int) -> AsyncIterator[None]:
        """Wait until fewer than `limit` rounds are in flight, and the next one may be sent.

        No caller joins it from then on.
        """
        while self._in_flight:
            self._ended.clear()
            pause_s = max(PAUSE_S, self._took_s / IN_FLIGHT) - (monotonic() - self._sent_at)
            is_full = self._in_flight >= limit
            if pause_s <= 0 and not is_full:
                break
            with suppress(TimeoutError):
                async with asyncio.timeout(None if is_full else pause_s):
                    await self._ended.wait()
        self.next = None
        self._sent_at = began = monotonic()
        self._in_flight += 1
        try:
            yield
        finally:
            self._in_flight -= 1
            self._took_s = monotonic() - began
            self._ended.set()


class ReplicaWait:
    """Waits for the replicas and the disk of the servers of a store."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self._idle: dict[str, list[ReconnectingConnection]] = defaultdict(list)
        self._queues: dict[tuple[str, str, Requirement], _Queue] = defaultdict(_Queue)
        self._files: dict[str, SyncedFiles | None] = {}
        """The files of embedded servers, by run id."""
        self._counting: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._known: dict[str, tuple[float, int]] = {}

    async def replicas(self, key: str) -> int:
        """Return how many replicas of the key's server are online, at most one second old."""
        address = self._store.address_of(key)
        async with self._counting[str(address)]:
            until, count = self._known.get(str(address), (0.0, 0))
            if monotonic() < until:
                return count
            run = self._store.run_of(key)
            async with self._connected(address) as (pipeline, _):
                info = parse_info(await self._ask(key, {run}, pipeline, "INFO", "replication"))
            count = online_replicas(info)
            self._known[str(address)] = (monotonic() + FRESH_S, count)
            return count

    async def wait(self, key: str, *, run: str, required: Requirement, timeout_s: float) -> bool:
        """Wait for the replicas, and for the server's disk if the requirement asks for it.

        Returns whether they have everything that was answered before this call, within the time.
        `run` is the store's `run_of` the key before that.
        """
        limit_s = min(max(timeout_s, 0.001), LONGEST_S)
        queue = self._queues[str(self._store.address_of(key)), run, required]
        joined = queue.next
        if joined is None:
            queue.next = joined = _Round()
            joined.task = asyncio.create_task(self._run(queue, joined, key, run, required))
        joined.callers += 1
        joined.limit_s = max(joined.limit_s, limit_s)
        try:
            await asyncio.wait([joined.task], timeout=limit_s)
        finally:
            joined.callers -= 1
            if not joined.callers and not joined.task.done():
                joined.task.cancel()
                if queue.next is joined:
                    queue.next = None
        return joined.task.done() and joined.task.result()

    async def _run(
        self, queue: _Queue, joined: _Round, key: str, run: str, required: Requirement
    ) -> bool:
        # Syncs of one file run one after another, in threads that others need too.
        limit = 1 if required[1] and self._files.get(run) is not None else IN_FLIGHT
        async with queue.turn(limit):
            address, runs = self._store.address_of_run(run) or self._store.address_of(key), {run}
            while True:
                failed: CommandFailed | StoreUnavailable | None = None
                try:
                    if not await self._wait_at(address, joined, key, runs, required):
                        return False
                except (CommandFailed, StoreUnavailable) as error:
                    failed = error
                if failed is None and self._store.run_of(key) in runs:
                    return True
                moved = await self._find_move(address, runs, key)
                if moved is None and failed is not None:
                    raise failed
                if moved is None:
                    return False
                if moved.asking:
                    await asyncio.sleep(CHECK_S)
                else:
                    address = address.at(moved.host, moved.port)
                    async with self._connected(address) as (_, here):
                        runs.add(here)

    async def _wait_at(
        self, address: Address, joined: _Round, key: str, runs: set[str], required: Requirement
    ) -> bool:
        replicas, fsync = required
        async with self._connected(address) as (pipeline, here):
            if here not in runs:
                return False
            if fsync and (files := await self._files_of(here, pipeline)) is not None:
                await _sync(files)
                fsync = False
            limit_ms = max(1, int(joined.limit_s * 1000))
            # One write: WAIT covers the command before it.
            commands: list[tuple[Arg, ...]] = [write_before_wait(key)]
            commands += [("WAIT", replicas, limit_ms)] * (replicas > 0)
            commands += [("WAITAOF", 1, 0, limit_ms)] * fsync
            asked = [self._ask(key, runs, pipeline, *command) for command in commands]
            _, *replies = await asyncio.gather(*asked)
        enough = not fsync or replies.pop()[0] >= 1
        return enough and (not replicas or replies[0] >= replicas)

    async def _find_move(self, address: Address, runs: set[str], key: str) -> Redirect | None:
        """Return where the server has moved the key's slot, or moves it; None if it does not.

        A former master redirects, too, but to a server that may lack the write.
        """
        try:
            async with (
                asyncio.timeout(LONGEST_MOVE_S),
                self._connected(address) as (pipeline, here),
            ):
                try:
                    await ask(pipeline, *write_before_wait(key))
                    return None
                except CommandFailed as refused:
                    moved = parse_redirect(refused.message, address.host)
                info = parse_info(await ask(pipeline, "INFO", "replication"))
                return moved if here in runs and info["role"] == "master" else None
        except (StoreUnavailable, TimeoutError):
            return None

    async def _ask(
        self, key: str, runs: set[str], pipeline: PipelinedConnection, *command: Arg
    ) -> Any:
        """Return the reply, unless the store leaves those runs of the key's server meanwhile."""
        asked = asyncio.ensure_future(ask(pipeline, *command))
        try:
            while not asked.done() and self._store.run_of(key) in runs:
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

    async def _files_of(self, run: str, pipeline: PipelinedConnection) -> SyncedFiles | None:
        """Return the files to sync if Korvet started the server, None if it syncs by itself."""
        if run not in self._files:
            files = None
            with suppress(CommandFailed):  # the user may lack the right to ask
                ident = await ask(pipeline, "CONFIG", "GET", "syslog-ident")
                policy = await ask(pipeline, "CONFIG", "GET", "appendfsync")
                if [*ident[1:], *policy[1:]] == [IDENT.encode(), b"no"]:
                    _, directory = await ask(pipeline, "CONFIG", "GET", "dir")
                    files = SyncedFiles(Path(os.fsdecode(directory)))
            self._files.setdefault(run, files)
        return self._files[run]

    async def close(self) -> None:
        """Close all connections."""
        for files in self._files.values():
            if files is not None:
                files.close()
        for connections in self._idle.values():
            for connection in connections:
                await connection.close()


async def _sync(files: SyncedFiles) -> None:
    """Sync the embedded server's file in a thread. Raises StoreUnavailable."""
    try:
        count = await asyncio.to_thread(files.sync)
    except OSError as error:
        raise StoreUnavailable(f"sync of the append-only file failed: {error}") from None
    if not count:
        raise StoreUnavailable("the append-only file of the embedded Redis is not on this machine")


def _connection(address: Address) -> ReconnectingConnection:
    options = ConnectOptions("korvet-replica-wait", timeout_s=2 * LONGEST_S)
    return ReconnectingConnection(always(address), options, ConnectionEvents())
