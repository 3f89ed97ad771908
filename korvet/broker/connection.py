"""One client connection: frames in, answers back in the order of the requests.

Rules
- One request at a time, as Kafka does, until its handler calls `release`: then the next one begins,
  while answers still leave in order.
- Of requests that do not wait for each other, AT_WORK of together AT_WORK_BYTES are at work at
  once: others that share the broker and Redis with this client are served after those, not after
  all that it has sent.
- Reading stops while too many requests are unanswered or too many of their bytes wait, while the
  client does not read its answers, or while Redis is behind. Whoever floods us waits; nobody else
  does.
- A request whose answer may be large (`promise`) waits while the connection owes LARGE_ANSWERS.
- What ends a connection, ends it with one line in the log: who, which request, and why.
"""

import asyncio
from functools import partial
from time import monotonic
from typing import Any, cast

from korvet import logfmt
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
from korvet.broker.produce_fast_path import TemplateCache
from korvet.broker.receive_buffer import BadFrame, ReceiveBuffer
from korvet.broker.response_queue import ResponseQueue
from korvet.context import Services
from korvet.deferred import NOT_READY, Deferred
from korvet.wire.records import Buffer

AT_WORK = 32
"""Enough to fill a round trip to Redis; a few milliseconds of work."""
AT_WORK_BYTES = 1 << 20
"""Beyond this nothing further begins: one large request is received while Redis has another."""
MAX_HELD = 4 << 20
"""So many bytes of requests may wait behind the one at work before reading stops."""
MAX_UNSENT = 4 << 20
LARGE_ANSWERS = 16 << 20
"""Answers promised beyond this let no further fetch of the connection begin."""
MAX_CONTROL = 16 << 20
"""The longest request that carries no records. Real ones are far below; and a frame of many tiny
elements becomes an order of magnitude more memory once it is decoded."""
LINGER_S = 10.0
"""How long a connection that was ended may take to read what it was sent before."""

log = logfmt.get("broker.connection")


class Connection(asyncio.BufferedProtocol):
    """Belongs to one socket; `connections` is the set of all that are open."""

    # What is spoken here; the listener for Kafka 0.7 says otherwise.
    speaks = "Kafka's protocol"
    max_control = MAX_CONTROL
    max_held = MAX_HELD

    def __init__(
        self,
        services: Services,
        connections: "set[Connection]",
        max_frame: int,
        most: int,
        most_per_host: int,
    ) -> None:
        self._services = services
        self._most = most
        self._most_per_host = most_per_host
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._intake = ReceiveBuffer(max_frame, self.max_control, PRODUCE)
        self._waiting = self._intake.frames
        self._max_queued = services.settings.integer("queued.max.requests")
        self._at_work = min(AT_WORK, self._max_queued)
        self._answers = ResponseQueue()
        self._counted = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._templates = TemplateCache(services)
        self._busy = False
        self._current = -1
        self._reading = True
        self._writable = True
        self._closing = False
        self._awaits_room = False
        self._flushing = False
        self._gone_by: float | None = None
        self._unsent = 0
        self.closed = self._loop.create_future()
        self.host = ""
        self.port = 0
        self.last_active = monotonic()

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        peer = transport.get_extra_info("peername")
        self.host, self.port = (peer[0], peer[1]) if peer else ("", 0)
        self._transport.set_write_buffer_limits(high=MAX_UNSENT)
        self._services.metrics.connections_opened.add()
        if len(self._connections) >= self._most or self._crowded():
            log.warning("connection refused", client=self.client, reason="too many connections")
            self._services.metrics.refused.add(1, "too many")
            self._transport.abort()
            return
        self._connections.add(self)

    def _crowded(self) -> bool:
        """Whether this client's address has all the connections it may have."""
        if len(self._connections) < self._most_per_host:
            return False
        here = sum(1 for other in self._connections if other.host == self.host)
        return here >= self._most_per_host

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self._gone()
        self._intake.clear()
        self._answers.clear()
        self._services.response_memory.bytes -= self._counted
        self._counted = 0
        for task in self._tasks:
            task.cancel()

    def _gone(self) -> None:
        """Nobody counts this connection, or waits for it, any more."""
        self._connections.discard(self)
        if not self.closed.done():
            self.closed.set_result(None)

    def eof_received(self) -> bool:
        """The client sends no more; what it has sent is still answered."""
        half = self._intake.half
        if half is not None:
            self._refuse("the client stopped inside a frame", named(half))
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
            self.hang(wrong_length(bad, self.speaks), **named(bad.head))
            return
        self._pump()

    def pause_writing(self) -> None:
        self._writable = False
        self._regulate()

    def resume_writing(self) -> None:
        self._writable = True
        self._count_unsent()
        self._pump()

    # Requests.

    def _pump(self) -> None:
        """Begins the next requests as far as order and bounds allow."""
        while self._waiting and not self._busy and self._may_begin():
            frame = self._intake.next()
            weight = len(frame)
            try:
                if self._templates.begin(frame, self, self._answers.next):
                    self._answers.begin(weight)
                    continue
                self._busy = True
                begun = self._begin(frame)
            except CloseConnection as reason:
                self.hang(str(reason), **reason.about)
                return
            except Exception as error:
                about = named(bytes(4) + bytes(frame[:4]))
                log.exception("a handler failed", error, client=self.client, **about)
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
        self._regulate()

    def _may_begin(self) -> bool:
        if not self._writable:
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
        """The request, for `_finish`; or its answer as a list. Raises CloseConnection."""
        return begin(frame, self._services, self.host, self._release)

    async def _finish(self, request: Any) -> list[Buffer] | None:
        return await finish(request, self._services)

    def _may_be_large(self, frame: Buffer) -> bool:
        """Whether the answer to this frame could be large."""
        return may_be_large(frame)

    def _promise(self, request: Any) -> int:
        """How many bytes the answer may have, where that is many."""
        return request.promise if isinstance(request, Request) else 0

    def _about(self, request: Any) -> dict[str, object]:
        """What a log line says of a request."""
        assert isinstance(request, Request)
        return {
            "api": request.api.name,
            "version": request.version,
            "correlation_id": request.correlation_id,
            "client_id": request.client_id,
        }

    def _release(self) -> None:
        """The running handler no longer minds if the next one begins."""
        self._busy = False
        if self._waiting:
            self._loop.call_soon(self._pump)

    def spawn(self, request: Any, number: int) -> None:
        """The request of that number is answered once its answer is there."""
        task = self._loop.create_task(self._run(request, number))
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
            self.settle(number, answer)

    def _replied(self, request: Request, number: int, reply: "asyncio.Future[Any]") -> None:
        """What the answer to the request was missing is there."""
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
        log.exception("a handler failed", error, client=self.client, **self._about(request))
        self.hang("")

    def settle(self, number: int, answer: list[Buffer] | None) -> None:
        """The request of that number is answered; it leaves when all earlier ones are, too."""
        if self._transport.is_closing() or not self._answers.settle(number, answer):
            return
        self._flush_soon()
        if number == self._current:
            self._busy = False
            if self._waiting:
                self._pump()

    def _flush_soon(self) -> None:
        """Requests that were sent to Redis together are answered together, in one write."""
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Every answer leaves for which all earlier ones have."""
        self._flushing = False
        parts = self._answers.take()
        if parts:
            self._services.metrics.sent_bytes.add(sum(map(len, parts)))
            self._transport.writelines(parts)
            self._count_unsent()
        if self._waiting or not self._reading:
            self._pump()
        if self._closing and not self._answers and not self._waiting:
            self._transport.close()

    # Bounds.

    def _count_unsent(self) -> None:
        """The node knows how many bytes wait for this client, where they are many."""
        if self._writable and not self._counted:
            return
        unsent = 0 if self._writable else self._transport.get_write_buffer_size()
        self._services.response_memory.bytes += unsent - self._counted
        self._counted = unsent

    def _await_room(self) -> None:
        if not self._awaits_room:
            self._awaits_room = True
            task = self._loop.create_task(self._when_room())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _when_room(self) -> None:
        await self._services.store.room()
        self._awaits_room = False
        self._pump()

    def _regulate(self) -> None:
        """Reads from the client exactly while more requests can be taken."""
        wanted = (
            self._writable
            and len(self._waiting) < self._max_queued
            and self._intake.held < self.max_held
            and not self._awaits_room
        )
        if wanted == self._reading or self._transport.is_closing():
            return
        self._reading = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    # The end.

    @property
    def client(self) -> str:
        """The client's address, for the log."""
        return f"{self.host}:{self.port}"

    @property
    def idle(self) -> bool:
        """Nothing is under way."""
        return not self._answers and not self._waiting

    def look(self, now: float, patience: float) -> None:
        """Looked at now and then: who said nothing, or read nothing, for `patience` is gone."""
        unsent = self._transport.get_write_buffer_size()
        if unsent != self._unsent:
            self._unsent = unsent
            self.last_active = now
        if self._gone_by is not None and now >= self._gone_by:
            self._transport.abort()
        elif patience < 0 or now - self.last_active < patience:
            return
        elif unsent:
            self._refuse("the client does not read its answers", {})
            self._transport.abort()
        elif self.idle:
            self.drain()

    def hang(self, reason: str, **about: object) -> None:
        """The connection ends at once, with one line in the log; no reason: it has been written."""
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
        """No further request is taken; the connection ends once what is under way is answered."""
        self._closing = True
        self._intake.clear()
        if not self._transport.is_closing():
            self._transport.pause_reading()
            self._reading = False
        if not self._answers:
            self._transport.close()

    def abort(self) -> None:
        """The connection is gone, answered or not."""
        self._transport.abort()
