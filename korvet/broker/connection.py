"""A client connection: receives frames, returns responses in the order of the requests.

Rules
- As in Kafka, one request is processed at a time, until its handler calls `release`: then the next
  request begins. Responses stay in order.
- At most AT_WORK released requests, and AT_WORK_BYTES of them, are in progress at once: requests of
  other clients do not wait for all that this client has sent.
- Reading stops while too many requests or bytes are queued, the client does not read its responses,
  or commands for Redis pile up. Only the client that sends too much waits.
- A request whose response may be large (`promise`) waits while LARGE_ANSWERS are pending.
- For every connection that the broker closes, one line is logged: client, request, reason.
"""

import asyncio
from collections.abc import Coroutine
from functools import partial
from math import ceil, inf
from time import monotonic
from typing import Any, cast

from korvet import logfmt
from korvet.broker.authentication import Authentication, RawToken
from korvet.broker.bad_request_log import named, wrong_length
from korvet.broker.dispatch import (
    PRODUCE,
    CloseConnection,
    Request,
    begin,
    finish,
    finish_at_once,
    may_be_large,
)
from korvet.broker.open_connections import OpenConnections
from korvet.broker.produce_fast_path import TemplateCache
from korvet.broker.receive_buffer import BadFrame, ReceiveBuffer
from korvet.broker.response_queue import ResponseQueue
from korvet.broker.tls_transport import TlsTransport
from korvet.config.listeners import Listener
from korvet.context import Services
from korvet.deferred import NOT_READY, Deferred
from korvet.security.principal import ANONYMOUS
from korvet.security.session import Session
from korvet.wire.records import Buffer

AT_WORK = 32
"""Max requests in progress: they fill a round trip to Redis and take a few milliseconds."""
AT_WORK_BYTES = 1 << 20
"""Bytes of requests in progress above which none begins: one is received while one is stored."""
MAX_HELD = 4 << 20
"""Max bytes of requests that are queued before reading stops."""
MAX_UNSENT = 4 << 20
LARGE_ANSWERS = 16 << 20
"""Bytes of pending large responses above which no further Fetch of the connection begins."""
MAX_CONTROL = 16 << 20
"""Max bytes of a request without records.

Real ones are far smaller. Decoding a frame of many tiny elements takes ten times its size in memory
or more.
"""
LINGER_S = 10.0
"""Seconds that a client has to read the responses sent before its connection was closed."""

_ANY = Listener()

log = logfmt.get("broker.connection")


class Connection(asyncio.BufferedProtocol):
    """A client connection. `connections` are all open ones."""

    # The listener for Kafka 0.7 overrides these.
    speaks = "Kafka's protocol"
    max_control = MAX_CONTROL
    max_held = MAX_HELD
    _size_setting = "socket.request.max.bytes"

    def __init__(
        self,
        services: Services,
        connections: OpenConnections,
        max_frame: int,
        listener: Listener = _ANY,
    ) -> None:
        self._services = services
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._max_frame = max_frame
        self._intake = ReceiveBuffer(max_frame, self.max_control, PRODUCE)
        self._waiting = self._intake.frames
        self._max_queued = services.settings.integer("queued.max.requests")
        self._at_work = min(AT_WORK, self._max_queued)
        self._answers = ResponseQueue()
        self._counted = 0
        self._held = 0
        self._admitted = False
        self._user: str | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.session = Session("", listener=listener.name, protocol=listener.protocol)
        self._templates = TemplateCache(services, self.session)
        self._busy = False
        self._current = -1
        self._reading = True
        self._writable = True
        self._closing = False
        self._awaits_room = False
        self._flushing = False
        self._gone_by: float | None = None
        self._muted_until = 0.0
        self._unsent = 0
        self.closed = self._loop.create_future()
        self._auth: Authentication | None = None
        self.host = ""
        self.port = 0
        self.last_active = monotonic()

    # Callbacks of the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transport is not a subclass
        peer = transport.get_extra_info("peername")
        self.host, self.port = (peer[0], peer[1]) if peer else ("", 0)
        self.session.client_host = self.host
        if self.session.protocol.startswith("SASL_"):
            self._require_authentication()
        self._transport.set_write_buffer_limits(high=MAX_UNSENT)
        self._services.metrics.connections_opened.add()
        refusal = self._admit(is_tls=isinstance(transport, TlsTransport))
        if refusal:
            log.warning(
                "connection refused",
                client=self.client,
                principal=self.session.principal,
                reason=refusal,
            )
            self._services.metrics.refused.add(1, "too many")
            self._transport.abort()
            return
        self._connections.add(self)
        if self._services.quotas.limits_connections(self.host):
            self._hold(self._charge_connection())

    def _admit(self, *, is_tls: bool) -> str:
        """Count the connection; return why it must be closed instead, empty if it need not."""
        if not is_tls:  # a TlsTransport has admitted its client's address
            refusal = self._connections.admit(self.host)
            if refusal:
                return refusal
            self._admitted = True
            self.mute(ceil(self._connections.wait_s() * 1000))
        principal = self.session.principal
        if principal != ANONYMOUS and not self._admit_user(principal.name):
            return "too many connections of the user"
        return ""

    def _admit_user(self, user: str) -> bool:
        """Count the connection for its user; return False if the user has too many."""
        if not self._connections.admit_user(user):
            return False
        self._user = user
        return True

    async def _charge_connection(self) -> None:
        """Serve the connection once its address is within connection_creation_rate (KIP-612)."""
        earlier, self._muted_until = self._muted_until, inf
        wait_ms = await self._services.quotas.charge_connection(self.host)
        self._muted_until = earlier
        self.mute(wait_ms)
        self._pump()

    def _require_authentication(self) -> None:
        """Take small frames only until the client has authenticated."""
        self._auth = Authentication(
            self._services,
            self.session,
            self._admit_user,
            self._authenticated,
            lambda reason: self.hang(reason),
        )
        self.max_held = self._auth.policy.max_receive_bytes
        self._size_setting = "sasl.server.max.receive.size"
        self._intake.limit(self.max_held)

    def _authenticated(self) -> None:
        self.max_held = type(self).max_held
        self._size_setting = type(self)._size_setting
        self._intake.limit(self._max_frame)

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        if self._auth is not None:
            self._auth.close()
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

    # Requests.

    def _pump(self) -> None:
        """Begin the next requests, as far as order and limits allow."""
        while self._waiting and not self._busy and self._may_begin():
            frame = self._intake.next()
            weight = len(frame)
            auth = self._auth
            admitted = auth is None or auth.admits(frame)
            try:
                if admitted and self._templates.begin(frame, self, self._answers.next):
                    self._answers.begin(weight)
                    continue
                self._busy = True
                if auth is None or admitted:
                    begun = self._begin(frame)
                else:
                    begun = auth.begin(frame, self._release)
            except CloseConnection as reason:
                self.hang(str(reason), **reason.about)
                return
            except Exception as error:
                about = named(bytes(4) + bytes(frame[:4]))
                log.exception("request handler failed", error, client=self.client, **about)
                self.hang("")
                return
            if isinstance(begun, list):
                self._answers.begin(weight, begun)
                self._busy = False
                self._flush_soon()
                continue
            number = self._current = self._answers.next
            self._answers.begin(weight)
            promise = self._promise(begun)
            if promise:
                self._answers.promise(number, promise)
            if isinstance(begun, Request) and isinstance(begun.answer, Deferred):
                self._templates.learn(frame, begun)
                begun.answer.reply.add_done_callback(partial(self._replied, begun, number))
            else:
                self.spawn(begun, number)
        self.regulate()

    def _may_begin(self) -> bool:
        if not self._writable or self._is_muted():
            return False
        if len(self._answers) >= self._at_work or self._answers.weight >= AT_WORK_BYTES:
            return False
        if self._answers.promised >= LARGE_ANSWERS and self._may_be_large(self._waiting[0]):
            return False
        store = self._services.store
        if store.pending_bytes >= store.max_pending_bytes:
            self._await_room()
            return False
        return True

    def _begin(self, frame: Buffer) -> Any:
        """Return the request for `_finish`, or its response as a list.

        Raises CloseConnection.
        """
        return begin(frame, self._services, self.session, self._release)

    async def _finish(self, request: Any) -> list[Buffer] | None:
        if isinstance(request, RawToken):
            return await request.answer
        return await finish(request, self._services)

    def _may_be_large(self, frame: Buffer) -> bool:
        """Return whether the response to this frame may be large."""
        return may_be_large(frame)

    def _promise(self, request: Any) -> int:
        """Return the max bytes of a response that may be large, 0 for any other."""
        return request.promise if isinstance(request, Request) else 0

    def _about(self, request: Any) -> dict[str, object]:
        """Return the log fields of a request."""
        if isinstance(request, RawToken):
            return {}
        assert isinstance(request, Request)
        return {
            "api": request.api.name,
            "version": request.version,
            "correlation_id": request.correlation_id,
            "client_id": request.client_id,
        }

    def _release(self) -> None:
        """Let the next request begin before the current one is answered."""
        self._busy = False
        if self._waiting:
            self._loop.call_soon(self._pump)

    def spawn(self, request: Any, number: int) -> None:
        """Await the response to the request of that number in a task."""
        self._hold(self._run(request, number))

    def _hold(self, work: Coroutine[Any, Any, None]) -> None:
        """Run the work in a task that ends with the connection."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, request: Any, number: int) -> None:
        try:
            answer = await self._finish(request)
        except CloseConnection as reason:
            self.hang(str(reason), **reason.about)
        except Exception as error:
            self._failed(request, error)
        else:
            if self._auth is not None and self._auth.ended is not None:
                self._end_authentication(self._auth)
            self.mute(getattr(request, "throttle_ms", 0))
            self.settle(number, answer)

    def _end_authentication(self, auth: Authentication) -> None:
        """Take no further requests: the last response says why the client is refused."""
        assert auth.ended is not None
        self._refuse(f"authentication failed: {auth.ended.reason}", auth.about)
        self._gone_by = monotonic() + LINGER_S
        self.drain()

    def mute(self, ms: int) -> None:
        """Begin no request for `ms`, and read none: the client is over a quota."""
        until = self._loop.time() + ms / 1000
        if ms and until > self._muted_until:
            self._muted_until = until
            self._loop.call_at(until, self._pump)
            self.regulate()

    def _is_muted(self) -> bool:
        return self._muted_until > 0 and self._muted_until > self._loop.time()

    def _replied(self, request: Request, number: int, reply: "asyncio.Future[Any]") -> None:
        """Complete a request whose deferred reply has arrived."""
        try:
            answer = finish_at_once(request, self._services)
        except Exception as error:
            self._failed(request, error)
            return
        if answer is NOT_READY:
            self.spawn(request, number)
        else:
            self.settle(number, cast("list[Buffer] | None", answer))

    def _failed(self, request: Any, error: Exception) -> None:
        log.exception("request handler failed", error, client=self.client, **self._about(request))
        self.hang("")

    def settle(self, number: int, answer: list[Buffer] | None) -> None:
        """Set the response to the request of that number; it is sent after all earlier ones."""
        if self._transport.is_closing() or not self._answers.settle(number, answer):
            return
        self._flush_soon()
        if number == self._current:
            self._busy = False
            if self._waiting:
                self._pump()

    def _flush_soon(self) -> None:
        """Send responses in the next event-loop iteration, so that they share one write."""
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Send the responses that no earlier request delays."""
        self._flushing = False
        parts = self._answers.take()
        if parts:
            self._services.metrics.sent_bytes.add(sum(map(len, parts)))
            self._transport.writelines(parts)
            self._count_unsent()
        self._count_requests()
        if self._waiting or not self._reading:
            self._pump()
        if self._closing and not self._answers and not self._waiting:
            self._transport.close()

    # Limits.

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
    def idle(self) -> bool:
        """True if no request is queued or in progress."""
        return not self._answers and not self._waiting

    def look(self, now: float, patience: float) -> None:
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
