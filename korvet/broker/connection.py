"""A connection of a Kafka client: templates, authentication, dispatch.

A frame that matches a template is processed at once. Any other is decoded, and its handler called;
until a client of a SASL listener has authenticated, `Authentication` decides about its frames.
"""

import asyncio
from contextlib import suppress
from functools import partial
from typing import Any, cast

from korvet.apis import TABLE
from korvet.base.deferred import NOT_READY, Deferred
from korvet.base.uptime import clock
from korvet.broker.authentication import Authentication, RawToken
from korvet.broker.dispatch import Request, begin, finish, finish_at_once
from korvet.broker.error_responses import has_response
from korvet.broker.fetch_fast_path import FetchTemplates, PendingFetch
from korvet.broker.network.client_socket import LINGER_S
from korvet.broker.network.open_connections import OpenConnections
from korvet.broker.network.ordered_connection import ANY_LISTENER, OrderedConnection
from korvet.broker.network.receive_buffer import Frame
from korvet.broker.network.request_decoder import CloseConnection, decode_frame, may_be_large
from korvet.broker.produce_fast_path import ProduceTemplates
from korvet.config.listeners import Listener
from korvet.context import Services
from korvet.wire.messages.metadata import MetadataRequest
from korvet.wire.records import Buffer

_READS = {row.key for row in TABLE if not row.may_change}


class Connection(OrderedConnection):
    """A connection of a Kafka client. `connections` are all open ones."""

    _services: Services

    def __init__(
        self,
        services: Services,
        connections: OpenConnections,
        max_frame: int,
        listener: Listener = ANY_LISTENER,
    ) -> None:
        super().__init__(services, connections, max_frame, listener)
        self._templates = ProduceTemplates(services, self.session)
        self._fetches = FetchTemplates(services, self.session)
        self._auth: Authentication | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self.session.protocol.startswith("SASL_"):
            self._require_authentication()
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._auth is not None:
            self._auth.close()
        super().connection_lost(exc)

    # Authentication.

    def _require_authentication(self) -> None:
        """Take small frames only until the client has authenticated."""
        services = self._services
        self._auth = Authentication(
            services.mechanisms,
            services.audit,
            services.metrics,
            self.session,
            dispatch=self._dispatch,
            admit=self._admit_user,
            on_success=self._authenticated,
            on_timeout=lambda reason: self.disconnect(reason),
        )
        self.max_queued = self._auth.policy.max_receive_bytes
        self._size_setting = "sasl.server.max.receive.size"
        self._received.limit(self.max_queued)

    def _authenticated(self) -> None:
        self.max_queued = type(self).max_queued
        self._size_setting = type(self)._size_setting
        self._received.limit(self._max_frame)

    def _end_authentication(self, auth: Authentication) -> None:
        """Take no further requests: the last response says why the client is refused."""
        assert auth.ended is not None
        self._refuse(f"authentication failed: {auth.ended.reason}", auth.about)
        self._abort_at = clock() + LINGER_S
        self.drain()

    # Requests.

    def _has_turn(self) -> bool:
        if self._fetches.is_empty or not may_be_large(self._frames[0]):
            return True
        return self._connections.turns.take(self)

    def _begin_known(self, frame: Frame) -> bool:
        """Begin a Produce, or answer a Fetch, that matches a template; return whether it does."""
        if self._auth is not None and not self._auth.admits(frame):
            return False
        if not may_be_large(frame):
            if not self._templates.begin(frame, self, self._responses.next):
                return False
            self._responses.begin(len(frame))
            return True
        answer = self._fetches.answer(frame)
        if answer is None:
            return False
        if isinstance(answer, PendingFetch):
            number = self._responses.next
            self._responses.begin(len(frame))
            self._responses.promise(number, answer.request.max_bytes)
            answer.range.sent.add_done_callback(partial(self._fetched, answer, number))
            return True
        self._responses.begin(len(frame), answer)
        self._send_ready()
        self._count_requests()
        if self._closing:
            self._flush_soon()
        return True

    def _fetched(self, pending: PendingFetch, number: int, _: "asyncio.Future[None]") -> None:
        """Answer a fetch whose range has arrived, or decode its frame after all."""
        if self._transport.is_closing() or self.closed.done():
            return
        found = pending.finish()
        if found is not None:
            self.respond(number, found)
        else:
            self._start_task(self._decode(pending.frame, number))

    async def _decode(self, frame: Frame, number: int) -> None:
        """Answer a request whose number is taken, after which others have begun."""
        try:
            begun = begin(frame, self._services, self.session, lambda: None)
        except CloseConnection as reason:
            self.disconnect(str(reason), **reason.about)
        else:
            await self._run(begun, number)

    def _begin(self, frame: Frame) -> Request | RawToken | list[Buffer]:
        if self._auth is not None and not self._auth.admits(frame):
            return self._auth.begin(frame)
        return self._dispatch(frame)

    def _dispatch(self, frame: Frame) -> Request | list[Buffer]:
        return begin(frame, self._services, self.session, self._release)

    def _await(self, frame: Frame, request: Any, number: int) -> None:
        if isinstance(request, Request):
            if request.promise:
                self._fetches.learn(frame, request)
            if isinstance(request.answer, Deferred):
                self._templates.learn(frame, request)
                request.answer.reply.add_done_callback(partial(self._replied, request, number))
                return
        self.spawn(request, number)

    async def _finish(self, request: Any) -> list[Buffer] | None:
        if isinstance(request, RawToken):
            answer: list[Buffer] | None = await request.answer
        else:
            answer = await finish(request, self._services)
            self.mute(request.throttle_ms)
        if self._auth is not None and self._auth.ended is not None:
            self._end_authentication(self._auth)
        return answer

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
            self.respond(number, cast("list[Buffer] | None", answer))

    def _may_be_repeated(self, frame: Buffer) -> bool:
        with suppress(CloseConnection):
            api, _, body = decode_frame(frame)
            if isinstance(body, MetadataRequest):
                return bool(body.topics and body.allow_auto_topic_creation)
            leaves = api.name == "LeaveGroup" or getattr(body, "member_epoch", 0) < 0
            return has_response(body) and not leaves
        return True

    def _may_change(self, frame: Buffer) -> bool:
        return int.from_bytes(frame[:2], "big") not in _READS

    def _may_be_large(self, frame: Buffer) -> bool:
        return may_be_large(frame)

    def _promise(self, request: Any) -> int:
        return request.promise if isinstance(request, Request) else 0

    def _about(self, request: Any) -> dict[str, object]:
        if isinstance(request, RawToken):
            return {}
        assert isinstance(request, Request)
        return {
            "api": request.api.name,
            "version": request.version,
            "correlation_id": request.correlation_id,
            "client_id": request.client_id,
        }
