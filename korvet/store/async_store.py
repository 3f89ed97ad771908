"""The broker's store: many tasks, few connections, one burst a turn.

What callers may rely on
- Calls of groups' scripts that write run in the order of submission, and so do those of all other
  scripts that write (`link` names the one exception, after a SCRIPT FLUSH). Each of the two has a
  connection of its own, as have scripts that only read, with plain commands: see `lanes`. What goes
  another way sees every write that was *answered* before it was submitted, and maybe later ones.
- `StoreUnavailable` means that nobody knows whether the call happened; it is never sent again here.
- No blocking command (BLPOP, XREAD BLOCK, WAIT): it would hold up everybody. `Wake` waits.
- A buffer passed as an argument must not change until its call is answered.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Any, Self, TypeVar

from korvet.scripts.call import Arg, Call, Reply
from korvet.store.address import Address, BadAddress, Location, parse
from korvet.store.cluster_router import ClusterRouter
from korvet.store.connection import PendingCommand, PipelinedConnection
from korvet.store.errors import RedisUnreachable, StoreUnavailable
from korvet.store.reconnect import ConnectOptions, Listener, ReconnectingConnection, Server
from korvet.store.reply_waiter import ReplyWaiter
from korvet.store.router import Router, SingleRouter

R = TypeVar("R", bound=Reply)
OnCall = Callable[[str, float, str], None]


class AsyncStore(Listener):
    """Runs calls on Redis. Made by `connect`; belongs to the event loop that made it."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, max_pending_bytes: int, on_call: OnCall | None
    ) -> None:
        self.on_call = on_call
        self.max_pending_bytes = max_pending_bytes
        self.turns = 0
        """Grows with every connection made and every call sent elsewhere: a replica may have taken
        over by then, and not know all that was answered before."""
        self._router: Router
        self._loop = loop
        self._crowd: deque[asyncio.Future[None]] = deque()
        self._waiting: list[asyncio.Future[None]] = []

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
    ) -> Self:
        """A store that is connected; RedisUnreachable or RedisTooOld say what to do otherwise.

        `on_call(name, seconds, outcome)` hears of every answered call, with the script's or the
        command's name and `ok`, `error` or `unavailable`. `timeout_s` of silence while something
        is in flight ends a connection.
        """
        try:
            location = parse(url)
        except BadAddress as error:
            raise RedisUnreachable(str(error)) from error
        manner = ConnectOptions(client_name, connect_s, timeout_s)
        store = cls(asyncio.get_running_loop(), max_pending_bytes, on_call)
        await store._open(location, manner)
        return store

    async def _open(self, location: Location, manner: ConnectOptions) -> None:
        try:
            if location.kind != "cluster":
                self._router = SingleRouter(location, manner, self)
                await self._router.open()
                if not self._router.server.cluster:
                    return
                await self._router.close()
            self._router = ClusterRouter(location, manner, self)
            await self._router.open()
        except BaseException:
            await self._router.close()
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """All connections are gone; what was in flight has failed."""
        await self._router.close()
        for future in self._waiting:
            if not future.done():
                future.set_exception(StoreUnavailable("the store was closed"))

    # What the store is.

    @property
    def server(self) -> Server:
        """What the server said about itself at the first connection."""
        return self._router.server

    @property
    def is_cluster(self) -> bool:
        return self._router.is_cluster

    @property
    def connected(self) -> bool:
        """Whether every connection stands right now."""
        return all(lane.up for lane in self._router.lanes())

    async def ready(self) -> None:
        """Every connection stands; after a loss this is the moment to go on."""
        while not self.connected:
            future = self._loop.create_future()
            self._waiting.append(future)
            await future

    @property
    def pending_bytes(self) -> int:
        """The size of all that was submitted and is not answered yet."""
        pending = 0
        for lane in self._router.lanes():
            pending += lane.link.pending_bytes
        return pending

    @property
    def round_trips(self) -> int:
        """How many bursts have left so far."""
        return sum(lane.bursts for lane in self._router.lanes())

    async def room(self) -> None:
        """`pending_bytes` is below `max_pending_bytes`. First come, first served."""
        while self.pending_bytes >= self.max_pending_bytes:
            future = self._loop.create_future()
            self._crowd.append(future)
            await future
        if self._crowd:
            self._loop.call_soon(self.progressed)

    # What the store does.

    def submit(self, call: Call[R]) -> asyncio.Future[R]:
        """The call leaves with this turn's burst; the future gets its reply."""
        future: asyncio.Future[R] = self._loop.create_future()
        self.send(call, future)
        return future

    def send(self, call: Call[R], waiter: ReplyWaiter[R]) -> None:
        """The call leaves with this turn's burst; the waiter gets its reply."""
        started = perf_counter() if self.on_call is not None else 0.0
        self._router.for_call(call).link.send(PendingCommand(waiter, call, (), started))

    async def run(self, call: Call[R]) -> R:
        """The call's reply."""
        return await self.submit(call)

    async def run_many(self, calls: Iterable[Call[R]]) -> list[R]:
        """The replies in the order of the calls; all in one burst. The first failure
        is raised; the other calls run all the same."""
        return await _all([self.submit(call) for call in calls])

    def submit_command(self, *command: Arg) -> asyncio.Future[Any]:
        """A plain command, on the connection for reads; the future gets the raw reply."""
        future: asyncio.Future[Any] = self._loop.create_future()
        started = perf_counter() if self.on_call is not None else 0.0
        self._router.for_command(command).link.send(PendingCommand(future, None, command, started))
        return future

    async def command(self, *command: Arg) -> Any:
        """The raw reply to a plain command: bytes, int, None or a list of these."""
        return await self.submit_command(*command)

    def place_of(self, key: str) -> Address:
        """The server that takes what is written to the key."""
        return self._router.for_write(key).place

    def run_of(self, key: str) -> str:
        """Which run of that server: one that fails over, or starts again, may lack what was written
        before. Empty while there is none."""
        return self._router.for_write(key).run

    def is_promoted(self, key: str) -> bool:
        """Whether that server has taken over from another one, as far as it knows."""
        return self._router.for_write(key).promoted

    # What the lanes call.

    def settled(self, ticket: PendingCommand, outcome: str) -> None:
        if self.on_call is not None:
            self.on_call(ticket.name, perf_counter() - ticket.started, outcome)

    def opened(self, lane: ReconnectingConnection, link: PipelinedConnection) -> None:
        self.turns += 1
        self.progressed()

    def dropped(self, lane: ReconnectingConnection) -> None:
        self._router.dropped(lane)
        self.progressed()

    def redirected(
        self, lane: ReconnectingConnection, ticket: PendingCommand, message: str
    ) -> bool:
        taken = self._router.redirected(lane, ticket, message)
        self.turns += taken
        return taken

    def progressed(self) -> None:
        if self._waiting and self.connected:
            waiting, self._waiting = self._waiting, []
            for future in waiting:
                if not future.done():
                    future.set_result(None)
        if self._crowd:
            while self._crowd and self.pending_bytes < self.max_pending_bytes:
                future = self._crowd.popleft()
                if not future.done():
                    future.set_result(None)
                    break


async def _all(futures: list[asyncio.Future[R]]) -> list[R]:
    try:
        return [await future for future in futures]
    except BaseException:
        for future in futures:
            let_go(future)
        raise


def let_go(future: asyncio.Future[Any]) -> None:
    """Nobody awaits the future any more: its outcome counts as seen."""
    future.add_done_callback(_look_at)


def _look_at(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()
