"""Listeners for clients, with TLS where the listener's protocol uses it."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import NamedTuple

import anyio
import msgspec

from korvet.broker.connection import Connection
from korvet.broker.network import listeners
from korvet.broker.network.open_connections import OpenConnections
from korvet.broker.network.tls_transport import RECEIVE_BYTES, Refused, TlsTransport
from korvet.config.listeners import Address, Listener
from korvet.context import Services
from korvet.security.session import Session
from korvet.security.tls import CHECK_S, ListenerTls


class BoundListener(NamedTuple):
    """A listener with the port that it was bound to, its server, and its TLS if it has any."""

    listener: Listener
    server: asyncio.base_events.Server
    tls: ListenerTls | None


async def bind(
    listener: Listener,
    services: Services,
    connections: OpenConnections,
    servers: AsyncExitStack,
) -> BoundListener:
    """Bind a listener, which `servers` closes."""
    config = services.config
    max_frame = config.settings.integer("socket.request.max.bytes")

    def accept() -> Connection:
        return Connection(services, connections, max_frame, listener)

    tls = ListenerTls(listener, config.settings) if listener.tls else None

    def audit_refusal(host: str, reason: str) -> None:
        session = Session(host, listener=listener.name, protocol=listener.protocol)
        services.audit.authentication(session, None, "SSL", reason, "")

    factory = accept if tls is None else _tls_factory(tls, accept, connections, audit_refusal)
    server = await listeners.bind("--listen", listener.address, config, factory)
    servers.callback(server.close)
    address = Address(listener.address.host, server.sockets[0].getsockname()[1])
    return BoundListener(msgspec.structs.replace(listener, address=address), server, tls)


def _tls_factory(
    tls: ListenerTls,
    accept: Callable[[], Connection],
    connections: OpenConnections,
    on_refused: Callable[[str, str], None],
) -> Callable[[], asyncio.BaseProtocol]:
    """Return the factory of a listener's sockets, on which clients use TLS."""
    buffer = memoryview(bytearray(RECEIVE_BYTES))

    def accept_client(certificate: bytes | None) -> Connection:
        principal = tls.principal(certificate)
        if principal is None:
            raise Refused("no rule of ssl.principal.mapping.rules matches the client's certificate")
        connection = accept()
        connection.session.principal = principal
        return connection

    return lambda: TlsTransport(
        tls.context, tls.handshake_timeout_s, accept_client, buffer, connections, on_refused
    )


async def refresh_tls(tls_listeners: Sequence[ListenerTls]) -> None:
    """Use the TLS files of the listeners when they change."""
    while tls_listeners:
        await anyio.sleep(CHECK_S)
        for tls in tls_listeners:
            await anyio.to_thread.run_sync(tls.refresh, abandon_on_cancel=True)
