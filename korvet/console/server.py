"""Serve the console's application on connections that the broker accepted.

uvicorn's protocol for HTTP/1.1 is used without its server: the broker owns the listener, and the
broker's signals stop the process.
"""

import asyncio
from contextlib import suppress
from functools import partial
from typing import Any

import anyio
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from korvet.base.uptime import clock
from korvet.broker.background.audit_writer import AuditWriter
from korvet.broker.background.runner import Leases, TaskRunner
from korvet.broker.interceptors import ReadOnly
from korvet.broker.network.stall_watch import StallWatch, has_ended
from korvet.broker.network.tls_stream import TlsState, TlsStream
from korvet.broker.network.tls_transport import RECEIVE_BYTES
from korvet.broker.ops.connection import OpsConnection
from korvet.broker.server import connected
from korvet.config.broker_config import Config
from korvet.console.app import build
from korvet.console.inbox import BrokerPages, Inbox
from korvet.console.services import ConsoleServices
from korvet.groups import lag_survey
from korvet.groups.lag_survey import INTERVAL_S

MAX_CONNECTIONS = 100
"""Max connections; further ones get 503."""
KEEP_ALIVE_S = 20
LAG_LEASE = "lag-history"
LAG_LEASE_S = 60.0
CLIENT_S = 30
"""Seconds for a client to send a request, and to read what the socket has not taken."""


class HandedOver(H11Protocol):
    """A connection of which the broker has read the first bytes."""

    first = b""
    stalls: StallWatch
    _room = memoryview(bytearray(RECEIVE_BYTES))
    """Shared by all connections: they are in one event loop."""

    def connection_made(self, transport: Any) -> None:
        """Process the bytes that were read."""
        self._request_timer: asyncio.TimerHandle | None = None
        self._response_timer: asyncio.TimerHandle | None = None
        super().connection_made(transport)
        if self.stalls.is_recent and self.stalls.waited(transport):
            transport.abort()
        else:
            self.data_received(self.first)

    def data_received(self, data: bytes) -> None:
        """Process bytes, unless they are late: a POST of before must change nothing now."""
        if self._is_late(data):
            self.transport.abort()
        else:
            super().data_received(data)
            is_idle = self.cycle is None or self.cycle.response_complete
            is_open = self.timeout_keep_alive_task is None if is_idle else self.cycle.more_body
            self._request_timer = self._limited(self._request_timer, is_open)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._response_timer = self._limited(self._response_timer, True)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._response_timer = self._limited(self._response_timer, False)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._request_timer = self._limited(self._request_timer, False)
        self._response_timer = self._limited(self._response_timer, False)

    def _limited(
        self, timer: asyncio.TimerHandle | None, is_open: bool
    ) -> asyncio.TimerHandle | None:
        """Return the timer that closes the connection unless the client ends this in CLIENT_S."""
        if timer is None and is_open:
            return self.loop.call_later(CLIENT_S, self.transport.abort)
        if timer is not None and not is_open:
            timer.cancel()
            return None
        return timer

    def _is_late(self, data: bytes) -> bool:
        """Return whether a stall has just ended, or the client is gone and must change nothing."""
        now, stalls = clock(), self.stalls
        if now >= stalls.alarm and stalls.check(now):
            return True
        may_change = not data.startswith((b"GET ", b"HEAD "))
        waited = stalls.unread_since < stalls.late_before
        return (may_change or waited) and has_ended(self.transport)

    # What TLS calls in place of data_received.

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(self._room[:nbytes]))


class HandedOverTls(TlsStream):
    """The TLS of such a connection, whose handshake the broker has made."""

    _room = memoryview(bytearray(RECEIVE_BYTES))

    def __init__(self, state: TlsState, inner: HandedOver) -> None:
        super().__init__(state, self._room)
        self._inner: Any = inner

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Process the bytes that the broker has received."""
        super().connection_made(transport)
        self._inner.connection_made(self)
        self._decrypt()


async def serve(config: Config, pages: BrokerPages, inbox: Inbox, stop: asyncio.Event) -> None:
    """Serve the connections of the inbox until `stop`. Raises StartError and StoreError."""
    async with connected(config, "korvet-console") as services, anyio.create_task_group() as tasks:
        if config.read_only:
            services.interceptor = ReadOnly()
        if services.audit.queue is not None:
            writer = AuditWriter(
                services.audit.queue,
                services.audit.topic,
                config.node_id,
                services.topics,
                services.auto_creator,
                services.produce,
                services.metrics,
            )
            tasks.start_soon(writer.run)
        if not config.read_only:
            leases = Leases(services.store, services.keys, config.node_id)
            hold = partial(leases.hold, LAG_LEASE, LAG_LEASE_S)
            record = partial(lag_survey.record_if_due, services.lag_survey, hold)
            runner = TaskRunner(services.notifier, services.metrics)
            tasks.start_soon(runner.repeat, "lag history", INTERVAL_S, record)
        console = ConsoleServices(services, pages)
        await console.start()
        tasks.start_soon(console.consumers.run)
        stalls = StallWatch(lambda: services.settings.integer("connections.max.stall.ms") / 1000)
        services.store.before_write = stalls.check_now
        tasks.start_soon(stalls.run)
        accepted = Connections(
            stalls,
            uvicorn.Config(
                build(console),
                http=HandedOver,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                date_header=False,
                limit_concurrency=MAX_CONNECTIONS,
                timeout_keep_alive=KEEP_ALIVE_S,
            ),
        )
        stalls.on_stall += [services.store.reconnect, accepted.abort]
        loop = asyncio.get_running_loop()
        inbox.open(lambda *each: loop.call_soon_threadsafe(accepted.add, *each))
        await stop.wait()
        console.is_closing = True
        await accepted.close()
        with anyio.move_on_after(1):
            await console.consumers.close()
        tasks.cancel_scope.cancel()


class Connections:
    """The open connections of the console."""

    def __init__(self, stalls: StallWatch, config: uvicorn.Config) -> None:
        config.load()
        self._stalls = stalls
        self._config = config
        self._state = ServerState()
        self._opening: set[asyncio.Task[None]] = set()

    def add(self, connection: OpsConnection, request: bytes) -> None:
        """Serve a connection, of which `request` was read."""
        task = asyncio.get_running_loop().create_task(self._open(connection, request))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _open(self, connection: OpsConnection, request: bytes) -> None:
        def protocol() -> asyncio.BaseProtocol:
            found = HandedOver(self._config, self._state, {})
            found.first, found.stalls = request, self._stalls
            return found if connection.tls is None else HandedOverTls(connection.tls, found)

        with suppress(OSError):
            await asyncio.get_running_loop().connect_accepted_socket(protocol, connection.socket)

    def abort(self, _: str) -> None:
        """Close all connections unread."""
        for each in list(self._state.connections):
            each.transport.abort()

    async def close(self) -> None:
        """Close all connections, after the responses in progress."""
        for each in list(self._state.connections):
            each.shutdown()
        if self._state.tasks:
            await asyncio.wait(self._state.tasks, timeout=1)
