"""The broker's store: many tasks, few connections, one write per event-loop iteration.

Guarantees
- Writing calls of group scripts run in the order of submission. So do writing calls of all other
  scripts (exception: `connection`, after SCRIPT FLUSH). Each of the two has its own connection;
  read-only scripts and plain commands share a third (`connections`). A call on another connection
  sees every write that was *answered* before it was submitted, and perhaps later ones.
- `StoreUnavailable` means that the outcome of the call is unknown: Redis has run it, or it never
  will. The store never sends it again. A writing call whose connection broke fails only once the
  server has no such connection any more. So it never runs after what its caller does then. There
  are three exceptions, see `reconnect`: no server could be reached for HELD_S; the server refuses
  CLIENT KILL, which is logged; the store was closed.
- No blocking command (BLPOP, XREAD BLOCK, WAIT): it would block every other caller. Use Notifier.
- The caller must not change a buffer passed as an argument before its call is answered.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from time import monotonic, perf_counter
from typing import Any, Self, TypeVar

from korvet.scripts.call import Arg, Call, Reply
from korvet.store.address import Address, Location, parse
from korvet.store.calls import ReplyWaiter, fail, resolve
from korvet.store.cluster_router import ClusterRouter
from korvet.store.connection import PendingCommand, PipelinedConnection
from korvet.store.errors import REPLICA_CODES, StoreUnavailable, code_of
from korvet.store.handshake import ConnectOptions, Server, parse_info
from korvet.store.range_connection import PendingRange, RangeConnection, RangeReply
from korvet.store.reconnect import ConnectionEvents, ConnectionSet, ReconnectingConnection
from korvet.store.sentinel_watch import SentinelWatcher
from korvet.store.slots import whole

LEAVE_INTERVAL_S = 0.5
"""Seconds between two attempts to leave a replica.

The address may lead to it for a long time, and each attempt stops reads for some milliseconds.
"""


class SingleRouter:
    """A single server, or the master that Sentinels name."""

    is_cluster = False

    def __init__(
        self, location: Location, options: ConnectOptions, listener: ConnectionEvents
    ) -> None:
        self._watcher = SentinelWatcher(location, options, self.connections)
        self._connections = ConnectionSet(self._watcher.find, options, listener)
        self._left_at = -LEAVE_INTERVAL_S
        self.server: Server

    async def open(self) -> None:
        """Open every connection and read the server's properties."""
        for connection in self._connections.all:
            self.server = await connection.open()
        self._watcher.open()

    def for_call(self, call: Call[Any]) -> ReconnectingConnection:
        return self._connections.for_call(call)

    def for_command(self, command: Sequence[Arg]) -> ReconnectingConnection:
        return self._connections.reads

    def for_range(self, key: str) -> ReconnectingConnection:
        return self._connections.ranges

    def for_write(self, key: str) -> ReconnectingConnection:
        return self._connections.writes

    def connections(self) -> Sequence[ReconnectingConnection]:
        return self._connections.all

    def dropped(self, connection: ReconnectingConnection) -> None:
        """Nothing to do: the connection reconnects by itself."""

    def redirected(
        self, connection: ReconnectingConnection, pending_command: PendingCommand, message: str
    ) -> bool:
        """Return False: calls are never redirected.

        If the server has become a replica, all connections leave it, at most once per
        LEAVE_INTERVAL_S: a replica answers reads from old data.
        """
        now = monotonic()
        if code_of(message) in REPLICA_CODES and now - self._left_at >= LEAVE_INTERVAL_S:
            self._left_at = now
            for each in self._connections.all:
                each.renew("the server has become a replica")
        return False

    async def close(self) -> None:
        await self._watcher.close()
        for connection in self.connections():
            await connection.close()


R = TypeVar("R", bound=Reply)
OnCall = Callable[[str, float, str], None]
DecisionWait = Callable[[str, str, Collection[str] | None], Awaitable[None]]
AcceptServer = Callable[[str], Awaitable[None]]


class AsyncStore(ConnectionEvents):
    """Runs calls on Redis. Create it with `connect`; it belongs to that event loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, max_pending_bytes: int, on_call: OnCall | None
    ) -> None:
        self.on_call = on_call
        self.max_pending_bytes = max_pending_bytes
        self.before_write: Callable[[], object] | None = None
        """Called before commands leave; it may call `reconnect` to keep them from it."""
        self.connection_epoch = 0
        """Incremented when a connection is made or calls go to another server.

        A replica may have taken over by then, without everything that was answered before.
        """
        self.decision_wait: DecisionWait | None = None
        self.accept_server: AcceptServer | None = None
        """Called with the history of the server of a new connection, before its first command."""
        self._router: SingleRouter | ClusterRouter
        self._loop = loop
        self._waiting_for_room: deque[asyncio.Future[None]] = deque()
        self._waiting_for_ready: list[asyncio.Future[None]] = []

    @classmethod
    async def connect(
        cls,
        url: str,
        *,
        client_name: str = "korvet",
        connect_s: float = 5.0,
        timeout_s: float = 30.0,
        max_pending_bytes: int = 8 * 1024 * 1024,
        on_call: OnCall | None = None,
        accept_server: AcceptServer | None = None,
    ) -> Self:
        """Connect to Redis. Raises RedisUnreachable or RedisTooOld.

        `on_call(name, seconds, outcome)` is called for every answered call, with the name of the
        script or command and `ok`, `error` or `unavailable`. `timeout_s` without a reply while
        commands are in flight closes the connection.
        """
        options = ConnectOptions(client_name, connect_s, timeout_s)
        store = cls(asyncio.get_running_loop(), max_pending_bytes, on_call)
        store.accept_server = accept_server
        await store._open(parse(url), options)
        return store

    async def _open(self, location: Location, options: ConnectOptions) -> None:
        try:
            if location.kind != "cluster":
                self._router = SingleRouter(location, options, self)
                await self._router.open()
                if not self._router.server.cluster:
                    return
                await self._router.close()
            self._router = ClusterRouter(location, options, self)
            await self._router.open()
        except BaseException:
            await self._router.close()
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections and fail what is in flight."""
        await self._router.close()
        for future in self._waiting_for_ready:
            fail(future, StoreUnavailable("the store was closed"))

    def reconnect(self, reason: str) -> None:
        """Leave all connections: what was not sent never is, and what waits for a reply fails."""
        for connection in self._router.connections():
            connection.leave(reason)

    # State.

    @property
    def server(self) -> Server:
        """Return what the server reported at the first connection."""
        return self._router.server

    @property
    def is_cluster(self) -> bool:
        return self._router.is_cluster

    @property
    def connected(self) -> bool:
        """Return whether every connection is up."""
        return all(connection.up for connection in self._router.connections())

    async def ready(self) -> None:
        """Wait until every connection is up."""
        while not self.connected:
            future = self._loop.create_future()
            self._waiting_for_ready.append(future)
            await future

    @property
    def pending_bytes(self) -> int:
        """Return the bytes submitted and not yet answered."""
        pending = 0
        for connection in self._router.connections():
            pending += connection.pipeline.pending_bytes
        return pending

    @property
    def round_trips(self) -> int:
        """Return the number of writes to sockets so far."""
        return sum(connection.writes for connection in self._router.connections())

    async def room(self) -> None:
        """Wait until `pending_bytes` is below `max_pending_bytes`, in order of arrival."""
        while self.pending_bytes >= self.max_pending_bytes:
            future = self._loop.create_future()
            self._waiting_for_room.append(future)
            await future
        if self._waiting_for_room:
            self._loop.call_soon(self.progressed)

    # Calls.

    def submit(self, call: Call[R]) -> asyncio.Future[R]:
        """Send the call with this iteration's commands; return the future of its reply."""
        future: asyncio.Future[R] = self._loop.create_future()
        self.send(call, future)
        return future

    def send(self, call: Call[R], waiter: ReplyWaiter[R]) -> None:
        """Send the call with this iteration's commands; its reply goes to the waiter."""
        started = perf_counter() if self.on_call is not None else 0.0
        if self._router.is_cluster:
            call = whole(call)
        self._router.for_call(call).pipeline.send(PendingCommand(waiter, call, (), started))

    async def run(self, call: Call[R]) -> R:
        """Run the call and return its reply."""
        return await self.submit(call)

    async def run_many(self, calls: Iterable[Call[R]]) -> list[R]:
        """Run the calls in one write and return the replies in order.

        The first failure is raised; the other calls run all the same.
        """
        return await all_of([self.submit(call) for call in calls])

    def submit_command(self, *command: Arg) -> asyncio.Future[Any]:
        """Send a plain command on the read connection; return the future of the raw reply."""
        future: asyncio.Future[Any] = self._loop.create_future()
        started = perf_counter() if self.on_call is not None else 0.0
        self._router.for_command(command).pipeline.send(
            PendingCommand(future, None, command, started)
        )
        return future

    async def command(self, *command: Arg) -> Any:
        """Return the raw reply to a plain command: bytes, int, None or a list of these."""
        return await self.submit_command(*command)

    def submit_range(
        self, key: str, commands: Sequence[Sequence[Arg]], reply: RangeReply
    ) -> asyncio.Future[None] | None:
        """Send the commands of a large range on the key's connection for ranges.

        The reply has been read once the future is done. None if there is no connection.
        """
        pipeline = self._router.for_range(key).pipeline
        if not isinstance(pipeline, RangeConnection):
            return None
        future: asyncio.Future[None] = self._loop.create_future()
        started = perf_counter() if self.on_call is not None else 0.0
        pipeline.send_range(PendingRange(future, commands, reply, started))
        return future

    async def used_memory(self) -> dict[str, int]:
        """Return the used_memory of each connected server in bytes, by its run id."""
        found = await self.info("memory")
        return {run: int(info["used_memory"]) for run, (_, info) in found.items()}

    async def info(self, section: str) -> dict[str, tuple[Address, dict[str, str]]]:
        """Return address and INFO section of each connected server, by its run id."""
        servers = {each.run: each for each in self._router.connections() if each.run}
        futures: list[asyncio.Future[Any]] = []
        for connection in servers.values():
            futures.append(self._loop.create_future())
            command = PendingCommand(futures[-1], None, ("INFO", section), perf_counter())
            connection.pipeline.send(command)
        replies = await all_of(futures)
        return {
            run: (connection.address, parse_info(reply))
            for (run, connection), reply in zip(servers.items(), replies, strict=True)
        }

    def address_of(self, key: str) -> Address:
        """Return the address of the server that takes writes to the key."""
        return self._router.for_write(key).address

    def address_of_run(self, run: str) -> Address | None:
        """Return the address of the master with that run id, None if there is none any more."""
        return next((each.address for each in self._router.connections() if each.run == run), None)

    def histories(self) -> list[str]:
        """Return the ids of the histories of all servers: see `Server.history`."""
        return sorted({each.history for each in self._router.connections() if each.history})

    def history_of(self, key: str) -> str:
        """Return the id of the history of that server, empty while there is none."""
        return self._router.for_write(key).history

    def run_of(self, key: str) -> str:
        """Return the run id of that server, empty while there is none.

        A server with another run id (failover, restart) may lack what was written before.
        """
        return self._router.for_write(key).run

    async def until_durable(
        self, key: str, run: str, topics: Collection[str] | None = None
    ) -> None:
        """Wait until what was decided at the key's server is as durable as acks=-1 asks for.

        `run` is `run_of` the key before the decision was made or read, `topics` those that it
        changes, None if they are unknown. Callers that execute it in another slot, or report it,
        wait first. Raises StoreUnavailable.
        """
        if self.decision_wait is not None:
            await self.decision_wait(key, run, topics)

    # Callbacks of the connections.

    async def accept(self, run: str) -> None:
        if self.accept_server is not None:
            await self.accept_server(run)

    def answered(self, pending_command: PendingCommand, outcome: str) -> None:
        if self.on_call is not None:
            self.on_call(pending_command.name, perf_counter() - pending_command.started, outcome)

    def opened(self, connection: ReconnectingConnection, pipeline: PipelinedConnection) -> None:
        self.connection_epoch += 1
        self.progressed()

    def dropped(self, connection: ReconnectingConnection) -> None:
        self._router.dropped(connection)
        self.progressed()

    def redirected(
        self, connection: ReconnectingConnection, pending_command: PendingCommand, message: str
    ) -> bool:
        taken = self._router.redirected(connection, pending_command, message)
        self.connection_epoch += taken
        return taken

    def writing(self) -> None:
        if self.before_write is not None:
            self.before_write()

    def progressed(self) -> None:
        if self._waiting_for_ready and self.connected:
            waiting, self._waiting_for_ready = self._waiting_for_ready, []
            for future in waiting:
                resolve(future, None)
        if self._waiting_for_room:
            while self._waiting_for_room and self.pending_bytes < self.max_pending_bytes:
                future = self._waiting_for_room.popleft()
                if not future.done():
                    future.set_result(None)
                    break


async def all_of(futures: Sequence[asyncio.Future[R]]) -> list[R]:
    """Return the replies in order; after the first failure the others are dropped."""
    try:
        return [await future for future in futures]
    except BaseException:
        for future in futures:
            ignore_result(future)
        raise


def ignore_result(future: asyncio.Future[Any]) -> None:
    """Mark the future's exception as retrieved: its caller is gone."""
    future.add_done_callback(lambda done: done.cancelled() or done.exception())
