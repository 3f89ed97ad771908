"""TLS between a socket and a `Connection`, which sees it as its transport.

Rules
- The protocol of the client is made when the handshake is complete. A handshake that fails or takes
  too long closes the connection, with one log line that says why.
- Bytes are encrypted only while the socket takes them: a client that does not read leaves plain
  bytes here, which count as unsent.
- Small responses share a TLS record, large ones are encrypted without a copy.
"""

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

from korvet import logfmt
from korvet.broker.open_connections import OpenConnections
from korvet.broker.tls_backlog import CHUNK, RECORD, TlsBacklog
from korvet.wire.records import Buffer

RECEIVE_BYTES = 64 << 10
_HANDSHAKE = 0x16
"""First byte of a TLS client."""
_NO_TLS = "the client does not use TLS: set its security.protocol to that of the listener"

log = logfmt.get("broker.tls")


class TlsTransport(asyncio.BufferedProtocol):
    """The protocol of a socket, and the transport of the protocol that `make` returns.

    `make` gets the client's certificate in DER or None; it may raise Refused. `buffer` is shared
    by the connections of an event loop: reading is synchronous. `on_refused` gets the address of a
    client without a valid certificate, and the reason.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        timeout_s: float,
        make: Callable[[bytes | None], asyncio.BufferedProtocol],
        buffer: memoryview,
        connections: OpenConnections,
        on_refused: Callable[[str, str], None] = lambda host, reason: None,
    ) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._timeout_s = timeout_s
        self._make = make
        self._on_refused = on_refused
        self._connections = connections
        self._host = ""
        self._admitted = False
        self._buffer = buffer
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None
        self._inner: asyncio.BufferedProtocol | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._backlog = TlsBacklog(self._tls, self._outgoing)
        self._high = CHUNK
        self._received = 0
        self._reading = True
        self._full = False
        self._inner_paused = False
        self._closing = False

    # Callbacks of the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._transport.set_write_buffer_limits(high=CHUNK)
        self._host = (transport.get_extra_info("peername") or ("",))[0]
        refusal = self._connections.admit(self._host)
        if refusal:
            self._log(refusal, event="connection refused")
            self.abort()
            return
        self._admitted = True
        wait_s = self._connections.wait_s()
        self._timer = self._loop.call_later(self._timeout_s + wait_s, self._expired)
        if wait_s:
            self.pause_reading()
            self._loop.call_later(wait_s, self._begin)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._closing:
            return
        if not self._received and self._buffer[0] != _HANDSHAKE:
            self._fail(_NO_TLS)
            return
        self._received += nbytes
        self._incoming.write(self._buffer[:nbytes])
        if self._inner is not None or (self._reading and self._shake_hands()):
            self._decrypt()

    def eof_received(self) -> bool:
        if self._inner is None:
            if self._received:
                self._log("the client ended the TLS handshake")
            return False
        return bool(self._inner.eof_received())

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self._stop_timer()
        if self._admitted:
            self._connections.leave(self._host)
        self._backlog.clear()
        if self._inner is not None:
            self._inner.connection_lost(exc)

    # The handshake.

    def _begin(self) -> None:
        """Begin the handshake of a connection that had to wait."""
        self._reading = True
        if not self._closing:
            self._transport.resume_reading()
            if self._received and self._shake_hands():
                self._decrypt()

    def _shake_hands(self) -> bool:
        """Continue the handshake; return whether it is complete."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        except ssl.SSLError as error:
            self._flush()  # the alert, which says why
            if _is_about_certificate(error):
                self._on_refused(self._host, _reason(error))
            self._fail(f"TLS handshake failed: {_reason(error)}")
            return False
        self._flush()
        self._stop_timer()
        try:
            inner = self._make(self._tls.getpeercert(binary_form=True))
        except Refused as refused:
            self._on_refused(self._host, str(refused))
            self._fail(str(refused))
            return False
        self._inner = inner
        inner.connection_made(self)  # type: ignore[arg-type]
        return True

    def _expired(self) -> None:
        self._log("TLS handshake not complete within ssl.handshake.timeout.ms")
        self._closing = True
        self._transport.abort()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fail(self, reason: str) -> None:
        self._log(reason)
        self._stop_timer()
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
            self._fail(f"TLS failed: {_reason(error)}")
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
        return self._tls if name == "ssl_object" else self._transport.get_extra_info(name, default)


class Refused(Exception):
    """A client that may not connect; the message says why."""


def _is_about_certificate(error: ssl.SSLError) -> bool:
    """Return whether the client's certificate is missing or not valid."""
    is_missing = error.reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE"
    return is_missing or isinstance(error, ssl.SSLCertVerificationError)


def _reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is refused: {error.verify_message}"
    return (error.reason or str(error)).lower().replace("_", " ")
