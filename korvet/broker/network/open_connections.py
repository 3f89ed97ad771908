"""The open connections of a broker process, and the limits that they share.

Rules
- A connection counts from the moment it is accepted: a client in a TLS handshake counts too. It
  counts for its user once that is authenticated; anonymous clients have no such limit.
- Connections above max.connection.creation.rate wait; those above the other limits are closed.
- While all connections together hold queued.max.request.bytes of requests, none is read, except
  those whose request is received in part: its bytes are reserved from its start, as in Kafka.
- Of the connections whose fetches are answered without waiting, one has its turn in each iteration
  of the event loop. A fetch of 1 MB that is read and written at once takes 0.3 ms. Other requests
  need several iterations: without turns, each would wait for the fetches of all consumers.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import anyio

from korvet.base.uptime import clock
from korvet.broker.network.stall_watch import StallWatch
from korvet.config.values import Settings


class Waiter(Protocol):
    """A connection that waits for its turn."""

    def continue_requests(self) -> None:
        """Begin the next requests; one of them may take the turn."""


class FetchTurns:
    """The turns of one event loop, in the order in which connections asked."""

    def __init__(self) -> None:
        self._queue: deque[Waiter] = deque()
        self._waiting: set[Waiter] = set()
        self._is_taken = False
        self._called: Waiter | None = None

    def take(self, waiter: Waiter) -> bool:
        """Return whether it is the connection's turn; else it is called when it is."""
        if not self._is_taken and (self._called is waiter or not self._queue):
            self._is_taken = True
            asyncio.get_running_loop().call_soon(self._next)
            return True
        if waiter not in self._waiting:
            self._waiting.add(waiter)
            self._queue.append(waiter)
        return False

    def _next(self) -> None:
        """Call connections until one takes its turn."""
        self._is_taken = False
        while self._queue and not self._is_taken:
            self._called = self._queue.popleft()
            self._waiting.discard(self._called)
            try:
                self._called.continue_requests()
            except BaseException:
                asyncio.get_running_loop().call_soon(self._next)
                raise
            finally:
                self._called = None


BEFORE_STALL = "the client connected before a stall of the broker process"
DRAIN_S = 5.0
IDLE_CHECK_S = 5.0
_ROOM = 0.75
"""Share of the limit below which connections are read again."""


class ClientConnection(Protocol):
    """The methods of a connection that a broker uses for all of them."""

    closed: "asyncio.Future[None]"

    @property
    def session_id(self) -> int:
        """Identity of the connection's session; 0 without one."""

    @property
    def last_active(self) -> float:
        """Time at which the client sent its last bytes."""

    @property
    def is_quiet(self) -> bool:
        """Return whether the broker has nothing of the client to read, to answer or to send."""

    def regulate(self) -> None:
        """Pause or resume reading, by all limits."""

    def check_idle(self, now: float, max_idle_s: float) -> None:
        """Close the connection if its client is idle."""

    def drain(self) -> None:
        """Close once the requests in progress are answered."""

    def abort(self) -> None:
        """Close at once."""

    def abort_unread(self) -> None:
        """Close at once; no request that was received begins."""


class OpenConnections:
    """The open connections of one process; `settings` returns the ones in effect."""

    def __init__(self, settings: Callable[[], Settings]) -> None:
        self._settings = settings
        self.turns = FetchTurns()
        """Turns of fetches that are answered without waiting."""
        self.stalls = StallWatch(lambda: settings().integer("connections.max.stall.ms") / 1000)
        self.stalls.on_stall.append(self._abort_all)
        self._open: set[ClientConnection] = set()
        self._hosts: Counter[str] = Counter()
        self._users: Counter[str] = Counter()
        self._next_at = 0.0
        self._limit = settings().integer("queued.max.request.bytes")
        self._queued = 0
        self.full = False
        """True while the connections hold the max bytes of requests."""

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[ClientConnection]:
        return iter(self._open)

    def admit(self, host: str) -> str:
        """Count a new connection; return why it must be closed instead, empty if it need not."""
        settings = self._settings()
        limit = _per_ip(settings, host)
        if self._hosts.total() >= settings.integer("max.connections") or self._hosts[host] >= limit:
            return "too many connections"
        self._hosts[host] += 1
        return ""

    def refuses_old(self, transport: asyncio.BaseTransport) -> str:
        """Return BEFORE_STALL for a connection that waited during a stall, empty for any other."""
        self.stalls.check_now()
        return BEFORE_STALL if self.stalls.is_recent and self.stalls.waited(transport) else ""

    def leave(self, host: str) -> None:
        """Stop counting a connection that was admitted."""
        _subtract(self._hosts, host)

    def admit_user(self, user: str) -> bool:
        """Count a connection of the user; return False if the user has too many."""
        if self._users[user] >= _per_user(self._settings(), user):
            return False
        self._users[user] += 1
        return True

    def leave_user(self, user: str) -> None:
        """Stop counting a connection of the user."""
        _subtract(self._users, user)

    def wait_s(self) -> float:
        """Return how long a new connection waits under max.connection.creation.rate."""
        rate = self._settings().integer("max.connection.creation.rate")
        now = asyncio.get_running_loop().time()
        # As many as in one second may come at once.
        begins = max(self._next_at, now - 1)
        self._next_at = begins + 1 / rate
        return max(0.0, begins - now)

    def add(self, connection: ClientConnection) -> None:
        """Add a connection that is ready for requests."""
        self._open.add(connection)

    def remove(self, connection: ClientConnection) -> None:
        """Remove a connection, if it is there."""
        self._open.discard(connection)

    async def close_idle(self, max_idle_s: float) -> None:
        """Close connections on which a client sent nothing, or read no response, for that time."""
        while True:
            await anyio.sleep(min(IDLE_CHECK_S, max_idle_s / 2) if max_idle_s > 0 else IDLE_CHECK_S)
            now = clock()
            for connection in list(self._open):
                connection.check_idle(now, max_idle_s)

    async def drain(self) -> None:
        """Answer the requests in progress, for at most DRAIN_S; then close all connections."""
        for connection in list(self._open):
            connection.drain()
        if self._open:
            await asyncio.wait([connection.closed for connection in self._open], timeout=DRAIN_S)
        for connection in list(self._open):
            connection.abort()

    def _abort_all(self, reason: str) -> None:
        for connection in list(self._open):
            connection.abort_unread()

    def count_requests(self, nbytes: int) -> None:
        """Add to the bytes of requests that all connections hold."""
        if self._limit < 0:
            return
        self._queued += nbytes
        full = self._queued >= self._limit * (_ROOM if self.full else 1)
        if full != self.full:
            self.full = full
            for connection in list(self._open):
                connection.regulate()


def _subtract(counts: Counter[str], name: str) -> None:
    counts[name] -= 1
    if not counts[name]:
        del counts[name]


def _per_ip(settings: Settings, host: str) -> int:
    overrides = settings.words("max.connections.per.ip.overrides")
    return _limit(overrides, host, settings.integer("max.connections.per.ip"))


def _per_user(settings: Settings, user: str) -> int:
    overrides = settings.words("max.connections.per.user.overrides")
    return _limit(overrides, user, settings.integer("max.connections.per.user"))


def _limit(overrides: Sequence[str], name: str, default: int) -> int:
    """Return the limit of the override NAME:NUMBER of that name, or the default."""
    for override in overrides:
        overridden, _, limit = override.rpartition(":")
        if overridden == name:
            return int(limit)
    return default
