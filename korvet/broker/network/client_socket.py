"""The socket of a client: bytes in, limits on what the client may queue, reasons to close.

Rules
- Reading stops while too many requests or bytes are queued, the client does not read its responses,
  or commands for Redis pile up. Only the client that sends too much waits.
- For every connection that the broker closes, one line is logged: client, request, reason.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Coroutine
from math import inf
from typing import Any, Protocol

from korvet.base import logfmt
from korvet.base.metrics import Metrics
from korvet.base.uptime import clock
from korvet.broker.network.open_connections import OpenConnections
from korvet.broker.network.receive_buffer import BadFrame, ReceiveBuffer
from korvet.broker.network.request_decoder import PRODUCE, known_api_fields, wrong_length
from korvet.config.values import Settings
from korvet.fetch.partition_reader import ResponseMemory
from korvet.security.quotas import Quotas
from korvet.store.async_store import AsyncStore
from korvet.wire.records import Buffer


class ResponseQueue:
    """Queue of responses. Requests are numbered from 0; a response waits for all earlier ones."""

    __slots__ = ("_first", "_promises", "_rows", "_weights", "promised", "weight")

    def __init__(self) -> None:
        self._first = 0
        self._rows: deque[list[Buffer] | bool | None] = deque()
        self._weights: deque[int] = deque()
        self._promises: dict[int, int] = {}
        self.weight = 0
        """Bytes of the requests that are not answered yet."""
        self.promised = 0
        """Max bytes of the pending responses that may be large."""

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def next(self) -> int:
        """Number of the next request."""
        return self._first + len(self._rows)

    def begin(self, weight: int, answer: list[Buffer] | None = None) -> None:
        """Add a request in progress, or one that is answered already."""
        self._weights.append(weight)
        self.weight += weight
        self._rows.append(False if answer is None else answer)

    def promise(self, number: int, size: int) -> None:
        """Reserve that many bytes for the response to a request."""
        self._promises[number] = size
        self.promised += size

    def complete(self, number: int, answer: list[Buffer] | None) -> bool:
        """Set the response to a request, None for none; return False if it had one already."""
        if number < self._first:
            return False
        self._rows[number - self._first] = answer
        return True

    @property
    def is_ready(self) -> bool:
        """Return whether there is a response that no earlier request delays."""
        return bool(self._rows) and self._rows[0] is not False

    def take(self, max_bytes: int) -> tuple[list[Buffer], int]:
        """Remove the responses that no earlier request delays; return their parts and bytes.

        Once they have `max_bytes` bytes, the others stay: sending all at once takes too long.
        """
        parts: list[Buffer] = []
        size = 0
        rows, promises = self._rows, self._promises
        while rows and rows[0] is not False and size < max_bytes:
            answer = rows.popleft()
            self.weight -= self._weights.popleft()
            if promises:
                self.promised -= promises.pop(self._first, 0)
            self._first += 1
            if isinstance(answer, list):
                parts += answer
                size += sum(map(len, answer))
        return parts, size

    def clear(self) -> None:
        """Drop all pending responses: the client is disconnected."""
        self._rows.clear()


MAX_QUEUED = 4 << 20
"""Max bytes of requests that are queued before reading stops."""
MAX_CONTROL = 16 << 20
"""Max bytes of a request without records.

Real ones are far smaller. Decoding a frame of many tiny elements takes ten times its size in memory
or more.
"""
TIMER_S = 0.005
"""Seconds by which a timer of the event loop may be early."""
LINGER_S = 10.0
"""Seconds that a client has to read the responses sent before its connection was closed."""

log = logfmt.get("broker.connection")


class SocketServices(Protocol):
    """The services that decide what a client may send, and count it."""

    @property
    def settings(self) -> Settings: ...
    @property
    def store(self) -> AsyncStore: ...
    @property
    def metrics(self) -> Metrics: ...
    @property
    def quotas(self) -> Quotas: ...
    @property
    def response_memory(self) -> ResponseMemory: ...


class ClientSocket(asyncio.BufferedProtocol, ABC):
    """A client's socket. A subclass handles the requests; `connections` are all open ones."""

    # The listener for Kafka 0.7 overrides these.
    speaks = "Kafka's protocol"
    max_control = MAX_CONTROL
    max_queued = MAX_QUEUED
    _size_setting = "socket.request.max.bytes"

    def __init__(
        self, services: SocketServices, connections: OpenConnections, max_frame: int
    ) -> None:
        self._services: SocketServices = services
        self._connections = connections
        self._stalls = connections.stalls
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._max_frame = max_frame
        self._received = ReceiveBuffer(max_frame, self.max_control, PRODUCE)
        self._frames = self._received.frames
        self._max_queued = services.settings.integer("queued.max.requests")
        self._responses = ResponseQueue()
        self._counted_unsent = 0
        self._counted_requests = 0
        self._admitted = False
        self._user: str | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._reading = True
        self._writable = True
        self._closing = False
        self._awaits_room = False
        self._abort_at: float | None = None
        self._muted_until = 0.0
        self._unsent = 0
        self.closed = self._loop.create_future()
        self.host = ""
        self.port = 0
        self.last_active = clock()
        self._waits_since = inf
        """The oldest request that has not begun arrived after this moment."""
        self._paused_at = inf
        """A moment before reading was paused, until some ticks after it was resumed.

        -inf once a late request was dropped: the client has ended, all that follows is late.
        """
        self._resumed_at = inf
        self._has_ended = False

    @abstractmethod
    def _begin_requests(self) -> None:
        """Begin the next requests, as far as order and limits allow."""

    # Callbacks of the event loop.

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        self._received.clear()
        self._responses.clear()
        self._services.response_memory.bytes -= self._counted_unsent
        self._counted_unsent = 0
        self._connections.count_requests(-self._counted_requests)
        self._counted_requests = 0
        # A task that has not begun yet would never await its handler: it begins before that.
        self._loop.call_soon(self._cancel_tasks)

    def _cancel_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _leave(self) -> None:
        """Remove this connection from the set of open ones and complete `closed`."""
        self._connections.remove(self)
        if self._admitted:
            self._admitted = False
            self._connections.leave(self.host)
        if self._user is not None:
            self._connections.leave_user(self._user)
            self._user = None
        if not self.closed.done():
            self.closed.set_result(None)

    def eof_received(self) -> bool:
        """Answer the requests received, then close: the client sends no more."""
        self._has_ended = True
        half = self._received.half
        if half is not None:
            self._refuse("the client ended the stream inside a frame", known_api_fields(half))
        if not self._responses and not self._frames:
            return False
        self._closing = True
        return True

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._received.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._services.metrics.received_bytes.add(nbytes)
        now = self.last_active = clock()
        if now >= self._stalls.alarm and self._stalls.check(now):
            return  # it closed this connection
        if not self._frames or self._paused_at == -inf:
            self._waits_since = self._unread_since()
        try:
            self._received.took(nbytes)
        except BadFrame as bad:
            self.disconnect(
                wrong_length(bad, self.speaks, self._size_setting), **known_api_fields(bad.head)
            )
            return
        self._count_requests()
        self._begin_requests()

    def pause_writing(self) -> None:
        self._writable = False
        self.regulate()

    def resume_writing(self) -> None:
        self._writable = True
        self._count_unsent()
        self._begin_requests()

    # Limits.

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Run the work in a task that ends with the connection."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def mute(self, ms: int) -> None:
        """Begin no request for `ms`, and read none: the client is over a quota."""
        until = self._loop.time() + ms / 1000
        if ms and until > self._muted_until:
            self._muted_until = until
            self._loop.call_at(until, self._unmute)
            self.regulate()

    def _unmute(self) -> None:
        """Continue, unless a later mute began. A timer may be early by the clock's resolution."""
        if self._muted_until - self._loop.time() < TIMER_S:
            self._muted_until = 0.0
            self._begin_requests()

    def _unread_since(self) -> float:
        """Return a moment after which the bytes that the socket has now arrived."""
        if -inf < self._paused_at < inf and self._stalls.unread_since > self._resumed_at:
            self._paused_at = inf
        return min(self._paused_at, self._stalls.unread_since)

    def _is_muted(self) -> bool:
        return self._muted_until > 0 and self._muted_until > self._loop.time()

    def _count_requests(self) -> None:
        """Count the bytes of requests that this connection holds, received or in progress."""
        queued = self._received.queued + self._received.reserved + self._responses.weight
        if queued != self._counted_requests:
            self._connections.count_requests(queued - self._counted_requests)
            self._counted_requests = queued

    def _count_unsent(self) -> None:
        """Count the unsent bytes as the process's response memory while the buffer is full."""
        if self._writable and not self._counted_unsent:
            return
        unsent = 0 if self._writable else self._transport.get_write_buffer_size()
        self._services.response_memory.bytes += unsent - self._counted_unsent
        self._counted_unsent = unsent

    def _await_room(self) -> None:
        if not self._awaits_room:
            self._awaits_room = True
            self._start_task(self._when_room())

    async def _when_room(self) -> None:
        await self._services.store.room()
        self._awaits_room = False
        self._begin_requests()

    def regulate(self) -> None:
        """Read from the client only while more requests may be queued."""
        wanted = (
            self._writable
            and not self._is_muted()
            and len(self._frames) < self._max_queued
            and self._received.queued < self.max_queued
            and not self._awaits_room
            and (not self._connections.full or self._received.reserved > 0)
        )
        if wanted == self._reading or self._transport.is_closing():
            return
        self._reading = wanted
        if wanted:
            self._resumed_at = self._stalls.ticked
            self._transport.resume_reading()
        else:
            self._paused_at = min(self._paused_at, self._stalls.ticked)
            self._transport.pause_reading()

    # Closing.

    @property
    def client(self) -> str:
        """Address of the client, for the log."""
        return f"{self.host}:{self.port}"

    @property
    def session_id(self) -> int:
        """Identity of the connection's session; 0 without one."""
        return 0

    @property
    def idle(self) -> bool:
        """True if no request is queued or in progress."""
        return not self._responses and not self._frames

    @property
    def is_quiet(self) -> bool:
        """Return whether the broker has nothing of the client to read, to answer or to send."""
        is_sent = not self._transport.get_write_buffer_size()
        return self.idle and self._received.half is None and is_sent

    def check_idle(self, now: float, max_idle_s: float) -> None:
        """Close the connection if the client sent or read nothing for that time."""
        unsent = self._transport.get_write_buffer_size()
        if unsent != self._unsent:
            self._unsent = unsent
            self.last_active = now
        if self._abort_at is not None and now >= self._abort_at:
            self._transport.abort()
        elif max_idle_s < 0 or now - self.last_active < max_idle_s:
            return
        elif unsent:
            self._refuse("the client does not read its responses", {})
            self._transport.abort()
        elif self.idle:
            self.drain()

    def disconnect(self, reason: str, **about: object) -> None:
        """Close the connection and log the reason; an empty one means that it is logged already."""
        if not self._transport.is_closing():
            self._abort_at = clock() + LINGER_S
            if reason:
                self._refuse(reason, about)
        self._received.clear()
        self._transport.close()

    def _refuse(self, reason: str, about: dict[str, object]) -> None:
        known = {"api": None, "version": None, **about}
        log.warning("connection closed", client=self.client, **known, reason=reason)
        self._services.metrics.refused.add(1, "protocol")

    def drain(self) -> None:
        """Accept no further requests; close once those in progress are answered."""
        self._closing = True
        self._received.clear()
        if not self._transport.is_closing():
            self._transport.pause_reading()
            self._reading = False
        if not self._responses:
            self._transport.close()

    def abort(self) -> None:
        """Close the connection without sending pending responses."""
        self._transport.abort()

    def abort_unread(self) -> None:
        """Close at once; no request that was received begins."""
        self._received.clear()
        self.abort()
