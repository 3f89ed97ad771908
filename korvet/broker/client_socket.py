"""The socket of a client: bytes in, limits on what the client may queue, reasons to close.

Rules
- Reading stops while too many requests or bytes are queued, the client does not read its responses,
  or commands for Redis pile up. Only the client that sends too much waits.
- For every connection that the broker closes, one line is logged: client, request, reason.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from time import monotonic
from typing import Any, Protocol

from korvet import logfmt
from korvet.broker.bad_request_log import named, wrong_length
from korvet.broker.open_connections import OpenConnections
from korvet.broker.receive_buffer import BadFrame, ReceiveBuffer
from korvet.broker.request_decoder import PRODUCE
from korvet.broker.response_queue import ResponseQueue
from korvet.config.values import Settings
from korvet.fetch.response_memory import ResponseMemory
from korvet.metrics import Metrics
from korvet.security.quotas import Quotas
from korvet.store.async_store import AsyncStore

MAX_HELD = 4 << 20
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
    max_held = MAX_HELD
    _size_setting = "socket.request.max.bytes"

    def __init__(
        self, services: SocketServices, connections: OpenConnections, max_frame: int
    ) -> None:
        self._services: SocketServices = services
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._max_frame = max_frame
        self._intake = ReceiveBuffer(max_frame, self.max_control, PRODUCE)
        self._waiting = self._intake.frames
        self._max_queued = services.settings.integer("queued.max.requests")
        self._answers = ResponseQueue()
        self._counted = 0
        self._held = 0
        self._admitted = False
        self._user: str | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._reading = True
        self._writable = True
        self._closing = False
        self._awaits_room = False
        self._gone_by: float | None = None
        self._muted_until = 0.0
        self._unsent = 0
        self.closed = self._loop.create_future()
        self.host = ""
        self.port = 0
        self.last_active = monotonic()

    @abstractmethod
    def _pump(self) -> None:
        """Begin the next requests, as far as order and limits allow."""

    # Callbacks of the event loop.

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self._gone()
        self._intake.clear()
        self._answers.clear()
        self._services.response_memory.bytes -= self._counted
        self._counted = 0
        self._connections.hold(-self._held)
        self._held = 0
        for task in self._tasks:
            task.cancel()

    def _gone(self) -> None:
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
        half = self._intake.half
        if half is not None:
            self._refuse("the client ended the stream inside a frame", named(half))
        if not self._answers and not self._waiting:
            return False
        self._closing = True
        return True

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._intake.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._services.metrics.received_bytes.add(nbytes)
        self.last_active = monotonic()
        try:
            self._intake.took(nbytes)
        except BadFrame as bad:
            self.hang(wrong_length(bad, self.speaks, self._size_setting), **named(bad.head))
            return
        self._count_requests()
        self._pump()

    def pause_writing(self) -> None:
        self._writable = False
        self.regulate()

    def resume_writing(self) -> None:
        self._writable = True
        self._count_unsent()
        self._pump()

    # Limits.

    def _hold(self, work: Coroutine[Any, Any, None]) -> None:
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
            self._pump()

    def _is_muted(self) -> bool:
        return self._muted_until > 0 and self._muted_until > self._loop.time()

    def _count_requests(self) -> None:
        """Count the bytes of requests that this connection holds, received or in progress."""
        held = self._intake.held + self._intake.reserved + self._answers.weight
        if held != self._held:
            self._connections.hold(held - self._held)
            self._held = held

    def _count_unsent(self) -> None:
        """Count the unsent bytes as the process's response memory while the buffer is full."""
        if self._writable and not self._counted:
            return
        unsent = 0 if self._writable else self._transport.get_write_buffer_size()
        self._services.response_memory.bytes += unsent - self._counted
        self._counted = unsent

    def _await_room(self) -> None:
        if not self._awaits_room:
            self._awaits_room = True
            self._hold(self._when_room())

    async def _when_room(self) -> None:
        await self._services.store.room()
        self._awaits_room = False
        self._pump()

    def regulate(self) -> None:
        """Read from the client only while more requests may be queued."""
        wanted = (
            self._writable
            and not self._is_muted()
            and len(self._waiting) < self._max_queued
            and self._intake.held < self.max_held
            and not self._awaits_room
            and (not self._connections.full or self._intake.reserved > 0)
        )
        if wanted == self._reading or self._transport.is_closing():
            return
        self._reading = wanted
        if wanted:
            self._transport.resume_reading()
        else:
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
        return not self._answers and not self._waiting

    @property
    def is_quiet(self) -> bool:
        """Return whether the broker has nothing of the client to read, to answer or to send."""
        is_sent = not self._transport.get_write_buffer_size()
        return self.idle and self._intake.half is None and is_sent

    def check_idle(self, now: float, patience: float) -> None:
        """Close the connection if the client sent or read nothing for `patience` seconds."""
        unsent = self._transport.get_write_buffer_size()
        if unsent != self._unsent:
            self._unsent = unsent
            self.last_active = now
        if self._gone_by is not None and now >= self._gone_by:
            self._transport.abort()
        elif patience < 0 or now - self.last_active < patience:
            return
        elif unsent:
            self._refuse("the client does not read its responses", {})
            self._transport.abort()
        elif self.idle:
            self.drain()

    def hang(self, reason: str, **about: object) -> None:
        """Close the connection and log the reason; an empty one means that it is logged already."""
        if not self._transport.is_closing():
            self._gone_by = monotonic() + LINGER_S
            if reason:
                self._refuse(reason, about)
        self._intake.clear()
        self._transport.close()

    def _refuse(self, reason: str, about: dict[str, object]) -> None:
        known = {"api": None, "version": None, **about}
        log.warning("connection closed", client=self.client, **known, reason=reason)
        self._services.metrics.refused.add(1, "protocol")

    def drain(self) -> None:
        """Accept no further requests; close once those in progress are answered."""
        self._closing = True
        self._intake.clear()
        if not self._transport.is_closing():
            self._transport.pause_reading()
            self._reading = False
        if not self._answers:
            self._transport.close()

    def abort(self) -> None:
        """Close the connection without sending pending responses."""
        self._transport.abort()
