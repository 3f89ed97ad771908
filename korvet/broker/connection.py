"""A client connection: receives frames, returns responses in the order of the requests.

Rules
- As in Kafka, one request is processed at a time, until its handler calls `release`: then the next
  request begins. Responses stay in order.
- At most AT_WORK released requests, and AT_WORK_BYTES of them, are in progress at once: requests of
  other clients do not wait for all that this client has sent.
- A request whose response may be large (`promise`) waits while LARGE_ANSWERS are pending.
"""

import asyncio
from functools import partial
from math import ceil, inf
from time import monotonic
from typing import Any, cast

from korvet import logfmt
from korvet.broker.authentication import Authentication, RawToken
from korvet.broker.bad_request_log import named
from korvet.broker.client_socket import LINGER_S, ClientSocket
from korvet.broker.direct_write import LARGE_BYTES, DirectWriter
from korvet.broker.dispatch import (
    CloseConnection,
    Request,
    begin,
    finish,
    finish_at_once,
    may_be_large,
)
from korvet.broker.fetch_fast_path import FetchTemplates
from korvet.broker.open_connections import OpenConnections
from korvet.broker.produce_fast_path import TemplateCache
from korvet.broker.receive_buffer import Frame
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
MAX_UNSENT = 4 << 20
LARGE_ANSWERS = 16 << 20
"""Bytes of pending large responses above which no further Fetch of the connection begins."""

_ANY = Listener()

log = logfmt.get("broker.connection")


class Connection(ClientSocket):
    """A client connection. `connections` are all open ones."""

    def __init__(
        self,
        services: Services,
        connections: OpenConnections,
        max_frame: int,
        listener: Listener = _ANY,
    ) -> None:
        super().__init__(services, connections, max_frame)
        self._at_work = min(AT_WORK, self._max_queued)
        self.session = Session("", listener=listener.name, protocol=listener.protocol)
        self._templates = TemplateCache(services, self.session)
        self._fetches = FetchTemplates(services, self.session)
        self._busy = False
        self._current = -1
        self._flushing = False
        self._direct: DirectWriter | None = None
        self._auth: Authentication | None = None

    @property
    def session_id(self) -> int:
        return id(self.session)

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

    def connection_lost(self, exc: Exception | None) -> None:
        if self._auth is not None:
            self._auth.close()
        super().connection_lost(exc)
        for call in self.session.on_close:
            call()

    def _authenticated(self) -> None:
        self.max_held = type(self).max_held
        self._size_setting = type(self)._size_setting
        self._intake.limit(self._max_frame)

    # Requests.

    def _pump(self) -> None:
        """Begin the next requests, as far as order and limits allow."""
        while self._waiting and not self._busy and self._may_begin():
            frame = self._intake.next()
            weight = len(frame)
            auth = self._auth
            admitted = auth is None or auth.admits(frame)
            try:
                if admitted and self._begin_known(frame):
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
                self._fetches.learn(frame, begun)
            if isinstance(begun, Request) and isinstance(begun.answer, Deferred):
                self._templates.learn(frame, begun)
                begun.answer.reply.add_done_callback(partial(self._replied, begun, number))
            else:
                self.spawn(begun, number)
        self.regulate()

    def _begin_known(self, frame: Frame) -> bool:
        """Begin a Produce, or answer a Fetch, that matches a template; return whether it does."""
        if not may_be_large(frame):
            if not self._templates.begin(frame, self, self._answers.next):
                return False
            self._answers.begin(len(frame))
            return True
        answer = self._fetches.answer(frame)
        if answer is None:
            return False
        self._answers.begin(len(frame), answer)
        self._send_ready()
        self._count_requests()
        if self._closing:
            self._flush_soon()
        return True

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
        if self._fetches.is_empty or not may_be_large(self._waiting[0]):
            return True
        return self._connections.turns.take(self)

    def continue_requests(self) -> None:
        """Begin the next requests, as it is this connection's turn."""
        self._pump()

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

    def _send_ready(self) -> None:
        """Write the responses that no earlier request delays."""
        if self._direct is not None and self._direct.waits:
            self._flush_soon()
            return
        parts = self._answers.take()
        if not parts:
            return
        size = sum(map(len, parts))
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
        """Send the responses that no earlier request delays."""
        self._flushing = False
        self._send_ready()
        self._count_requests()
        if self._waiting or not self._reading:
            self._pump()
        if self._closing and not self._answers and not self._waiting:
            self._transport.close()
