"""TLS between a socket and the protocol of its client: encryption, backpressure, the end.

Rules
- Bytes are encrypted only while the socket takes them: a client that does not read leaves plain
  bytes here, which count as unsent.
- Small responses share a TLS record, large ones are encrypted without a copy.
"""

import asyncio
import ssl
from collections import deque
from contextlib import suppress
from typing import Any, cast

from korvet.base import logfmt
from korvet.wire.records import Buffer

CHUNK = 256 << 10
"""Encrypted bytes that the socket's transport buffers before encryption pauses."""
RECORD = 16 << 10
"""Max bytes of a TLS record; smaller responses are joined up to this size."""


class TlsBacklog:
    """Responses in order, as plain bytes: `parts`, with `nbytes` in total."""

    __slots__ = ("_outgoing", "_tls", "nbytes", "parts")

    def __init__(self, tls: ssl.SSLObject, outgoing: ssl.MemoryBIO) -> None:
        self._tls = tls
        self._outgoing = outgoing
        self.parts: deque[memoryview] = deque()
        self.nbytes = 0

    def add(self, parts: list[Buffer]) -> None:
        """Add a response."""
        for part in parts:
            if len(part):
                self.parts.append(memoryview(part))
                self.nbytes += len(part)

    def clear(self) -> None:
        """Drop all bytes: the client is disconnected."""
        self.parts.clear()
        self.nbytes = 0

    def encrypt(self) -> list[bytes]:
        """Return records of the next CHUNK bytes: OpenSSL never frees the longest it had."""
        records: list[bytes] = []
        left = CHUNK
        while self.parts and left > 0:
            part = self.parts.popleft()
            if len(part) < RECORD and self.parts:
                part = self._join(part)
            elif len(part) > RECORD:
                self.parts.appendleft(part[RECORD:])
                part = part[:RECORD]
            self._tls.write(part)
            self.nbytes -= len(part)
            left -= len(part)
            records.append(self._outgoing.read())
        return records

    def _join(self, part: memoryview) -> memoryview:
        """Return one record of this and the next small parts of the backlog."""
        parts, size = [part], len(part)
        while self.parts and size < RECORD:
            part = self.parts.popleft()
            if size + len(part) > RECORD:
                self.parts.appendleft(part[RECORD - size :])
                part = part[: RECORD - size]
            parts.append(part)
            size += len(part)
        return memoryview(b"".join(parts))


log = logfmt.get("broker.tls")


class TlsState:
    """The TLS of a connection, and the encrypted bytes in memory on both sides of it."""

    __slots__ = ("incoming", "outgoing", "tls")

    def __init__(self, context: ssl.SSLContext) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_side=True)


class TlsStream(asyncio.BufferedProtocol):
    """The protocol of a socket, and the transport of the client's protocol.

    `buffer` is shared by the connections of an event loop: reading is synchronous.
    """

    def __init__(self, state: TlsState, buffer: memoryview) -> None:
        self._incoming, self._outgoing, self._tls = state.incoming, state.outgoing, state.tls
        self._buffer = buffer
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None
        self._inner: asyncio.BufferedProtocol | None = None
        self._backlog = TlsBacklog(self._tls, self._outgoing)
        self._high = CHUNK
        self._reading = True
        self._full = False
        self._inner_paused = False
        self._closing = False

    # Callbacks of the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._transport.set_write_buffer_limits(high=CHUNK)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if not self._closing:
            self._incoming.write(self._buffer[:nbytes])
            self._decrypt()

    def eof_received(self) -> bool:
        return self._inner is not None and bool(self._inner.eof_received())

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self._backlog.clear()
        if self._inner is not None:
            self._inner.connection_lost(exc)

    def _fail(self, reason: str) -> None:
        self._log(reason)
        self._closing = True
        self._transport.close()

    def _log(self, reason: str, event: str = "connection closed") -> None:
        peer = self._transport.get_extra_info("peername") or ("", 0)
        log.warning(event, client=f"{peer[0]}:{peer[1]}", reason=reason)

    # Receiving.

    def _decrypt(self) -> None:
        """Pass decrypted bytes on until there are no more, or reading is paused."""
        inner = self._inner
        assert inner is not None
        try:
            while self._reading and not self._closing:
                buffer = inner.get_buffer(-1)
                count = cast(int, self._tls.read(len(buffer), buffer))  # type: ignore[arg-type]
                if not count:
                    self._peer_closed()
                    return
                inner.buffer_updated(count)
                if not self._incoming.pending and not self._tls.pending():
                    break  # one read more would raise, which takes longer than these questions
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self._peer_closed()
        except ssl.SSLError as error:
            self._fail(f"TLS failed: {reason_of(error)}")
        if self._outgoing.pending and not self._closing:
            self._flush()

    def _peer_closed(self) -> None:
        """Close, once the requests received are answered: the client sends no more."""
        self._transport.pause_reading()
        self._reading = False
        if self._inner is not None and not self._inner.eof_received():
            self.close()

    # Sending.

    def _send(self) -> None:
        """Encrypt and write, while the socket takes it."""
        while self._backlog.parts and not self._full:
            self._transport.writelines(self._backlog.encrypt())
        if self._inner is not None:
            self._regulate(self._inner, self.get_write_buffer_size())
        if self._closing and not self._backlog.parts:
            self._end()

    def _regulate(self, inner: asyncio.BufferedProtocol, unsent: int) -> None:
        """Pause the protocol above its limit of unsent bytes, resume it below a quarter of it."""
        if self._inner_paused and unsent <= self._high // 4:
            self._inner_paused = False
            inner.resume_writing()
        elif not self._inner_paused and unsent > self._high:
            self._inner_paused = True
            inner.pause_writing()

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._transport.write(self._outgoing.read())

    def _end(self) -> None:
        """Send the end of the stream and close the socket."""
        with suppress(ssl.SSLError):  # it waits for the client's end, and the broker does not
            self._tls.unwrap()
        self._flush()
        self._transport.close()

    # The transport of the inner protocol.

    def write(self, data: Buffer) -> None:
        self.writelines([data])

    def writelines(self, parts: list[Buffer]) -> None:
        if self._closing:
            return
        size = sum(map(len, parts))
        if size <= RECORD and not self._backlog.parts and not self._full and not self._inner_paused:
            self._tls.write(b"".join(parts))
            self._transport.write(self._outgoing.read())
            return
        self._backlog.add(parts)
        self._send()

    def get_write_buffer_size(self) -> int:
        return self._backlog.nbytes + int(self._transport.get_write_buffer_size())

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = CHUNK if high is None else high

    def pause_reading(self) -> None:
        self._reading = False
        if not self._closing:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._reading = True
        if not self._closing:
            self._transport.resume_reading()
            self._loop.call_soon(self._resume_decrypting)

    def _resume_decrypting(self) -> None:
        if not self._closing:
            self._decrypt()

    def is_closing(self) -> bool:
        return self._closing or bool(self._transport.is_closing())

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._transport.pause_reading()
            if not self._backlog.parts:
                self._end()

    def abort(self) -> None:
        self._closing = True
        self._transport.abort()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name in ("ssl_object", "sslcontext"):
            return self._tls if name == "ssl_object" else self._tls.context
        return self._transport.get_extra_info(name, default)


def reason_of(error: ssl.SSLError) -> str:
    """Return why TLS failed, in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is refused: {error.verify_message}"
    return (error.reason or str(error)).lower().replace("_", " ")
