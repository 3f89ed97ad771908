"""A client connection of any protocol: requests in order, and responses in their order.

Rules
- As in Kafka, one request is processed at a time, until its handler calls `release`: then the next
  request begins. Responses stay in order.
- At most AT_WORK released requests, and AT_WORK_BYTES of them, are in progress at once: requests of
  other clients do not wait for all that this client has sent.
- A request whose response may be large (`promise`) waits while LARGE_RESPONSES are pending.
- A request that waited is dropped if its client has closed the connection meanwhile: the client may
  have repeated it elsewhere. One that may change something is dropped without a wait too, unless it
  matches a template: the network may have held it back. One without a response is processed, as the
  client repeats none, and one that leaves a group, whose response many clients do not wait for.

Write large responses to a plain socket, past the transport of the event loop.

uvloop holds the interpreter lock while it writes, for 0.2 ms per MB. `os.writev` releases it: the
thread that reads ahead works meanwhile.

uvloop writes what its transport gets at the end of an iteration, and does not count it until then.
A direct write would come before it: there is none until the next iteration.
"""

import asyncio
import os
from abc import abstractmethod
from math import ceil, inf
from typing import Any, cast

import anyio

from korvet.base import logfmt
from korvet.broker.network.client_socket import ClientSocket, SocketServices
from korvet.broker.network.open_connections import OpenConnections
from korvet.broker.network.receive_buffer import Frame
from korvet.broker.network.request_decoder import CloseConnection, api_fields
from korvet.broker.network.stall_watch import has_ended
from korvet.broker.network.tls_transport import TlsTransport
from korvet.config.listeners import Listener
from korvet.security.session import ANONYMOUS, Session
from korvet.wire.records import Buffer

LARGE_BYTES = 256 << 10
"""Bytes from which on a write takes longer than its detour."""
MAX_PARTS = 512
"""Parts of one call, below IOV_MAX of Linux and macOS."""


class DirectWriter:
    """Writes to the socket of a transport; belongs to its event loop."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._given = 0
        """How often the transport got bytes in this iteration and the one before."""
        self._descriptor = -1
        is_tls = isinstance(transport, TlsTransport) or transport.get_extra_info("ssl_object")
        socket = None if is_tls else transport.get_extra_info("socket")
        if socket is not None:
            self._descriptor = socket.fileno()
        self.note_given()

    def note_given(self) -> None:
        """Note that the transport got bytes: it may write them at the end of this iteration."""
        if self._descriptor >= 0:
            self._given += 1
            self._loop.call_soon(self._note_written)

    @property
    def waits(self) -> bool:
        """Return whether the transport may write bytes only at the end of this iteration."""
        return self._given > 0

    def _note_written(self) -> None:
        self._given -= 1

    def write(self, parts: list[Buffer], size: int) -> list[Buffer]:
        """Write as much as the socket takes; return the rest, which belongs to the transport.

        That is all of it if the transport has bytes too, and after an error.
        """
        transport = self._transport
        if self._descriptor < 0 or len(parts) > MAX_PARTS or transport.is_closing():
            return parts
        if self._given or transport.get_write_buffer_size():
            return parts
        try:
            written = os.writev(self._descriptor, parts)
        except OSError:
            return parts  # the socket takes nothing, or the transport meets the error too
        return [] if written == size else _after(parts, written)


def _after(parts: list[Buffer], written: int) -> list[Buffer]:
    """Return the parts without their first bytes."""
    for at, part in enumerate(parts):
        if written < len(part):
            return [memoryview(part)[written:], *parts[at + 1 :]]
        written -= len(part)
    return []


AT_WORK = 32
"""Max requests in progress: they fill a round trip to Redis and take a few milliseconds."""
AT_WORK_BYTES = 1 << 20
"""Bytes of requests in progress above which none begins: one is received while one is stored."""
MAX_UNSENT = 4 << 20
"""Bytes of unsent responses above which no request begins."""
LARGE_RESPONSES = 16 << 20
"""Bytes of pending large responses above which no further Fetch of the connection begins."""
RECONNECT_S = 1.0
"""Seconds that a new connection waits for Redis: after a stall the broker connects again."""
ANY_LISTENER = Listener()

log = logfmt.get("broker.connection")


class OrderedConnection(ClientSocket):
    """A client connection; a subclass decodes and handles its requests."""

    def __init__(
        self,
        services: SocketServices,
        connections: OpenConnections,
        max_frame: int,
        listener: Listener = ANY_LISTENER,
    ) -> None:
        super().__init__(services, connections, max_frame)
        self._at_work = min(AT_WORK, self._max_queued)
        self.session = Session("", listener=listener.name, protocol=listener.protocol)
        self._busy = False
        self._current = -1
        self._flushing = False
        self._direct: DirectWriter | None = None

    @property
    def session_id(self) -> int:
        return id(self.session)

    # The protocol.

    @abstractmethod
    def _begin(self, frame: Frame) -> Any:
        """Return the request for `_finish`, or its response as a list.

        Raises CloseConnection.
        """

    @abstractmethod
    async def _finish(self, request: Any) -> list[Buffer] | None:
        """Return the response of a request. Raises CloseConnection."""

    @abstractmethod
    def _may_be_large(self, frame: Buffer) -> bool:
        """Return whether the response to this frame may be large."""

    @abstractmethod
    def _promise(self, request: Any) -> int:
        """Return the max bytes of a response that may be large, 0 for any other."""

    @abstractmethod
    def _about(self, request: Any) -> dict[str, object]:
        """Return the log fields of a request."""

    def _begin_known(self, frame: Frame) -> bool:
        """Begin a request that need not be decoded; return whether this one is."""
        return False

    def _has_turn(self) -> bool:
        """Return whether this connection may begin its next request in this iteration."""
        return True

    def _await(self, frame: Frame, request: Any, number: int) -> None:
        """Await the response to a request."""
        self.spawn(request, number)

    def _may_be_repeated(self, frame: Buffer) -> bool:
        """Return whether a client without a response may send this request again elsewhere."""
        return False

    def _may_change(self, frame: Buffer) -> bool:
        """Return whether this request may change something."""
        return False

    # Accepted and closed.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transport is not a subclass
        peer = transport.get_extra_info("peername")
        self.host, self.port = (peer[0], peer[1]) if peer else ("", 0)
        self.session.client_host = self.host
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
        charged = self._services.quotas.limits_connections(self.host)
        if charged or (self._stalls.is_recent and not self._services.store.connected):
            self._start_task(self._serve_later(self._muted_until, charged=charged))
            self._muted_until = inf

    def _admit(self, *, is_tls: bool) -> str:
        """Count the connection; return why it must be closed instead, empty if it need not."""
        if not is_tls:  # a TlsTransport has admitted its client's address
            refusal = self._connections.refuses_old(self._transport) or self._connections.admit(
                self.host
            )
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

    async def _serve_later(self, muted_until: float, *, charged: bool) -> None:
        """Serve the connection once Redis is connected, or will not be soon.

        If it is `charged`, once its address is within connection_creation_rate (KIP-612), too.
        """
        with anyio.move_on_after(RECONNECT_S):
            await self._services.store.ready()
        wait_ms = await self._services.quotas.charge_connection(self.host) if charged else 0
        self._muted_until = muted_until
        self.mute(wait_ms)
        self._begin_requests()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for call in self.session.on_close:
            call()

    # Requests.

    def _begin_requests(self) -> None:
        """Begin the next requests, as far as order and limits allow."""
        while self._frames and not self._busy and self._may_begin():
            if self._waits_since < self._stalls.late_before and self._drop_late():
                break
            frame = self._received.next()
            weight = len(frame)
            try:
                if self._begin_known(frame) or self._is_abandoned(frame):
                    continue
                self._busy = True
                begun = self._begin(frame)
            except CloseConnection as reason:
                self.disconnect(str(reason), **reason.about)
                return
            except Exception as error:
                about = api_fields(frame)
                log.exception("request handler failed", error, client=self.client, **about)
                self.disconnect("")
                return
            if isinstance(begun, list):
                self._responses.begin(weight, begun)
                self._busy = False
                self._flush_soon()
                continue
            number = self._current = self._responses.next
            self._responses.begin(weight)
            promise = self._promise(begun)
            if promise:
                self._responses.promise(number, promise)
            self._await(frame, begun, number)
        self.regulate()

    def _drop_late(self) -> bool:
        """Drop the requests of a client that has ended; return whether none is left to begin."""
        if not self._has_ended and not has_ended(self._transport):
            self._waits_since = self._stalls.ticked
            return False
        self._has_ended, self._paused_at = True, -inf
        kept = [frame for frame in self._frames if not self._may_be_repeated(frame)]
        count = len(self._frames) - len(kept)
        if count:
            self._received.keep(kept)
        self._waits_since = inf
        self._note_dropped(count)
        return not kept

    def _is_abandoned(self, frame: Buffer) -> bool:
        """Return whether to drop this request, as its client has ended."""
        if not self._may_change(frame) or not (self._has_ended or has_ended(self._transport)):
            return False
        self._has_ended = True
        if not self._may_be_repeated(frame):
            return False
        self._note_dropped(1)
        return True

    def _note_dropped(self, count: int) -> None:
        if count:
            self._services.metrics.late_requests.add(count)
            log.info("late requests dropped", client=self.client, count=count)
        if self._closing:
            self._flush_soon()

    def _may_begin(self) -> bool:
        if not self._writable or self._is_muted():
            return False
        if len(self._responses) >= self._at_work or self._responses.weight >= AT_WORK_BYTES:
            return False
        if self._responses.promised >= LARGE_RESPONSES and self._may_be_large(self._frames[0]):
            return False
        store = self._services.store
        if store.pending_bytes >= store.max_pending_bytes:
            self._await_room()
            return False
        return self._has_turn()

    def continue_requests(self) -> None:
        """Begin the next requests, as it is this connection's turn."""
        self._begin_requests()

    def _release(self) -> None:
        """Let the next request begin before the current one is answered."""
        self._busy = False
        if self._frames:
            self._loop.call_soon(self._begin_requests)

    def spawn(self, request: Any, number: int) -> None:
        """Await the response to the request of that number in a task."""
        self._start_task(self._run(request, number))

    async def _run(self, request: Any, number: int) -> None:
        try:
            answer = await self._finish(request)
        except CloseConnection as reason:
            self.disconnect(str(reason), **reason.about)
        except Exception as error:
            self._failed(request, error)
        else:
            self.respond(number, answer)

    def _failed(self, request: Any, error: Exception) -> None:
        log.exception("request handler failed", error, client=self.client, **self._about(request))
        self.disconnect("")

    # Responses.

    def respond(self, number: int, answer: list[Buffer] | None) -> None:
        """Set the response to the request of that number; it is sent after all earlier ones."""
        if self._transport.is_closing() or not self._responses.complete(number, answer):
            return
        self._flush_soon()
        if number == self._current:
            self._busy = False
            if self._frames:
                self._begin_requests()

    def _flush_soon(self) -> None:
        """Send responses in the next event-loop iteration, so that they share one write."""
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _send_ready(self) -> None:
        """Write responses that no earlier request delays: at most one large one."""
        if self._direct is not None and self._direct.waits:
            self._flush_soon()
            return
        parts, size = self._responses.take(LARGE_BYTES)
        if self._responses.is_ready:
            self._flush_soon()
        if not parts:
            return
        self._services.metrics.sent_bytes.add(size)
        if size >= LARGE_BYTES:
            if self._direct is None:
                self._direct = DirectWriter(self._transport)
            parts = self._direct.write(parts, size)
        if parts:
            self._transport.writelines(parts)
            if self._direct is not None:
                self._direct.note_given()
            self._count_unsent()

    def _flush(self) -> None:
        """Send the responses that no earlier request delays; begin requests, or close."""
        self._flushing = False
        self._send_ready()
        self._count_requests()
        if self._frames or not self._reading:
            self._begin_requests()
        if self._closing and not self._responses and not self._frames:
            self._transport.close()
