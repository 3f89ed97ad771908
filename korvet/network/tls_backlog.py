"""Plain bytes that wait for encryption, because the client does not read them yet."""

import ssl
from collections import deque

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
