"""A connection of the ops port: a socket, with TLS in memory if the port has it.

The broker reads the first request and answers it, or hands socket and TLS over to the console.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from korvet.base import logfmt
from korvet.broker.network.tls_stream import TlsState, reason_of
from korvet.broker.network.tls_transport import HANDSHAKE

_PART = 16 << 10
_USE_TLS = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"
    b"Content-Length: 43\r\nConnection: close\r\n\r\nThis port uses TLS: open https:// instead.\n"
)

T = TypeVar("T")
log = logfmt.get("broker.ops")


class NotServed(ConnectionError):
    """Signal that the connection has no usable request."""


class OpsConnection:
    """A connection of the ops port; `tls` is None without TLS."""

    def __init__(self, connection: socket.socket, context: ssl.SSLContext | None) -> None:
        self.socket = connection
        self.tls = None if context is None else TlsState(context)
        self._loop = asyncio.get_running_loop()

    async def start(self) -> None:
        """Shake hands, if the port has TLS. Raises NotServed and OSError."""
        if self.tls is None:
            return
        part = await self._loop.sock_recv(self.socket, _PART)
        if part and part[0] != HANDSHAKE:
            await self._loop.sock_sendall(self.socket, _USE_TLS)
            raise NotServed
        self.tls.incoming.write(part)
        try:
            await self._repeat(self.tls.tls.do_handshake)
        except ssl.SSLError as error:
            await self._flush()  # the alert, which says why
            log.warning("connection closed", client=self._peer, reason=reason_of(error))
            raise NotServed from None

    async def receive(self, size: int) -> bytes:
        """Return the next bytes of the client, none at their end. Raises OSError."""
        if self.tls is None:
            return await self._loop.sock_recv(self.socket, size)
        tls = self.tls.tls
        try:
            return await self._repeat(lambda: tls.read(size))
        except ssl.SSLError:
            return b""

    async def send(self, data: bytes) -> None:
        """Send the bytes, and the end of TLS. Raises OSError."""
        if self.tls is None:
            await self._loop.sock_sendall(self.socket, data)
            return
        self.tls.tls.write(data)
        with suppress(ssl.SSLError):  # it waits for the client's end, and the broker does not
            self.tls.tls.unwrap()
        await self._flush()

    def send_now(self, data: bytes) -> None:
        """Send a few bytes, in a thread without an event loop. Raises OSError."""
        if self.tls is not None:
            self.tls.tls.write(data)
            data = self.tls.outgoing.read()
        self.socket.send(data)

    def close(self) -> None:
        self.socket.close()

    @property
    def _peer(self) -> str:
        host, port = self.socket.getpeername()[:2]
        return f"{host}:{port}"

    async def _repeat(self, step: Callable[[], T]) -> T:
        """Do a step of TLS, with as many bytes of the client as it needs."""
        while True:
            try:
                found = step()
            except ssl.SSLWantReadError:
                await self._flush()
                if not await self._fill():
                    raise NotServed from None
            else:
                await self._flush()
                return found

    async def _fill(self) -> bool:
        """Read encrypted bytes; return False at their end."""
        assert self.tls is not None
        part = await self._loop.sock_recv(self.socket, _PART)
        self.tls.incoming.write(part)
        return bool(part)

    async def _flush(self) -> None:
        assert self.tls is not None
        if self.tls.outgoing.pending:
            await self._loop.sock_sendall(self.socket, self.tls.outgoing.read())
