"""Send request frames on a socket and pass on each whole reply frame.

Rules
- The socket reads into one buffer: a reply is a slice of it, valid only during the call.
- Replies are not decoded here.
- A closed socket or a reader that raises ends the load with that exception.
"""

import asyncio
import ssl
import struct
from collections.abc import Callable
from functools import cache, partial
from typing import Any, cast

ROOM = 1 << 18
TLS = "SSL"
LARGE, SMALL = 4 << 20, 1 << 16
"""Initial buffer sizes, bytes: for replies with records, and for each of 1,000 connections."""


class Connection(asyncio.BufferedProtocol):
    """A connection that calls `on_reply` with each reply frame, without its length prefix."""

    def __init__(self, room: int = LARGE) -> None:
        self._buffer = bytearray(room)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0
        self.transport: asyncio.WriteTransport | None = None
        self.on_reply: Callable[[memoryview], None] = lambda reply: None
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport for writes."""
        self.transport = cast(asyncio.WriteTransport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Set the reason as the exception of `closed`."""
        if not self.closed.done():
            self.closed.set_exception(exc or ConnectionError("the broker closed the connection"))

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the free part of the buffer."""
        if len(self._buffer) - self._end < ROOM:
            self._compact()
        return self._view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        """Pass on every whole frame received so far."""
        self._end += nbytes
        start, end = self._start, self._end
        while end - start >= 4:
            (size,) = struct.unpack_from(">i", self._buffer, start)
            if end - start - 4 < size:
                self._make_room(size + 4)
                return
            start = self._start = start + 4 + size
            try:
                self.on_reply(self._view[start - size : start])
            except Exception as reason:
                self._fail(reason)
                return
        if start == end:
            self._start = self._end = 0

    def send(self, frame: bytes) -> None:
        """Write the frame to the socket."""
        assert self.transport is not None
        self.transport.write(frame)

    async def ask(self, frame: bytes) -> bytes:
        """Send a request and return a copy of its reply."""
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.on_reply = lambda reply: answer.set_result(bytes(reply))
        self.send(frame)
        either: set[asyncio.Future[Any]] = {answer, self.closed}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        return answer.result() if answer.done() else self._raise()

    def close(self) -> None:
        """Close the socket without an exception in `closed`."""
        if not self.closed.done():
            self.closed.cancel()
        if self.transport is not None:
            self.transport.close()

    def _raise(self) -> bytes:
        self.closed.result()
        raise ConnectionError("the broker closed the connection")

    def _fail(self, reason: Exception) -> None:
        if not self.closed.done():
            self.closed.set_exception(reason)
        assert self.transport is not None
        self.transport.abort()

    def _make_room(self, size: int) -> None:
        if self._start + size + ROOM > len(self._buffer):
            if size + ROOM > len(self._buffer):
                grown = bytearray(2 * size + ROOM)
                grown[: self._end - self._start] = self._view[self._start : self._end]
                self._buffer, self._view = grown, memoryview(grown)
                self._start, self._end = 0, self._end - self._start
            else:
                self._compact()

    def _compact(self) -> None:
        unread = self._end - self._start
        self._view[:unread] = bytes(self._view[self._start : self._end])
        self._start, self._end = 0, unread


async def connect(address: str, room: int = LARGE) -> Connection:
    """Connect to HOST:PORT, or to SSL://HOST:PORT without a check of the certificate."""
    protocol, separator, endpoint = address.rpartition("://")
    host, _, port = endpoint.rpartition(":")
    loop = asyncio.get_running_loop()
    context = _context() if separator and protocol == TLS else None
    _, connection = await loop.create_connection(
        partial(Connection, room), host, int(port), ssl=context
    )
    return connection


@cache
def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
