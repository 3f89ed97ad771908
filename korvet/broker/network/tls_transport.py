"""The TLS handshake of a client, whose `Connection` then sees TLS as its transport.

Rules
- The protocol of the client is made when the handshake is complete. A handshake that fails or takes
  too long closes the connection, with one log line that says why.
- `tls_stream.py` encrypts and decrypts.
"""

import asyncio
import ssl
from collections.abc import Callable

from korvet.base.uptime import clock
from korvet.broker.network.open_connections import BEFORE_STALL, OpenConnections
from korvet.broker.network.tls_stream import TlsState, TlsStream, reason_of

RECEIVE_BYTES = 64 << 10
HANDSHAKE = 0x16
"""First byte of a TLS client."""
_NO_TLS = "the client does not use TLS: set its security.protocol to that of the listener"


class TlsTransport(TlsStream):
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
        super().__init__(TlsState(context), buffer)
        self._timeout_s = timeout_s
        self._make = make
        self._on_refused = on_refused
        self._connections = connections
        self._host = ""
        self._admitted = False
        self._timer: asyncio.TimerHandle | None = None
        self._received = 0
        self._opened_at = 0.0

    # Callbacks of the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._host = (transport.get_extra_info("peername") or ("",))[0]
        refusal = self._connections.refuses_old(transport) or self._connections.admit(self._host)
        self._opened_at = clock()
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

    def buffer_updated(self, nbytes: int) -> None:
        if self._closing:
            return
        if not self._received and self._buffer[0] != HANDSHAKE:
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

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        if self._admitted:
            self._connections.leave(self._host)
        super().connection_lost(exc)

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
                self._on_refused(self._host, reason_of(error))
            self._fail(f"TLS handshake failed: {reason_of(error)}")
            return False
        self._flush()
        self._stop_timer()
        if self._connections.stalls.ended_at > self._opened_at:
            self._fail(BEFORE_STALL)
            return False
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
        self._stop_timer()
        super()._fail(reason)


class Refused(Exception):
    """A client that may not connect; the message says why."""


def _is_about_certificate(error: ssl.SSLError) -> bool:
    """Return whether the client's certificate is missing or not valid."""
    is_missing = error.reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE"
    return is_missing or isinstance(error, ssl.SSLCertVerificationError)
