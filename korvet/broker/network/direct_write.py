"""Write large responses to a plain socket, past the transport of the event loop.

uvloop holds the interpreter lock while it writes, for 0.2 ms per MB. `os.writev` releases it: the
thread that reads ahead works meanwhile.

uvloop writes what its transport gets at the end of an iteration, and does not count it until then.
A direct write would come before it: there is none until the next iteration.
"""

import asyncio
import os

from korvet.broker.network.tls_transport import TlsTransport
from korvet.wire.records import Buffer

LARGE_BYTES = 256 << 10
"""Bytes from which on a write takes longer than its detour."""
MAX_PARTS = 512
"""Parts of one call, below IOV_MAX of Linux and macOS."""


class DirectWriter:
    """Writes to the socket of a transport; belongs to its event loop."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._given = 0
        """How often the transport got bytes in this iteration and the one before."""
        self._descriptor = -1
        is_tls = isinstance(transport, TlsTransport) or transport.get_extra_info("ssl_object")
        socket = None if is_tls else transport.get_extra_info("socket")
        if socket is not None:
            self._descriptor = socket.fileno()
        self.note_given()

    def note_given(self) -> None:
        """Note that the transport got bytes: it may write them at the end of this iteration."""
        if self._descriptor >= 0:
            self._given += 1
            self._loop.call_soon(self._note_written)

    @property
    def waits(self) -> bool:
        """Return whether the transport may write bytes only at the end of this iteration."""
        return self._given > 0

    def _note_written(self) -> None:
        self._given -= 1

    def write(self, parts: list[Buffer], size: int) -> list[Buffer]:
        """Write as much as the socket takes; return the rest, which belongs to the transport.

        That is all of it if the transport has bytes too, and after an error.
        """
        transport = self._transport
        if self._descriptor < 0 or len(parts) > MAX_PARTS or transport.is_closing():
            return parts
        if self._given or transport.get_write_buffer_size():
            return parts
        try:
            written = os.writev(self._descriptor, parts)
        except OSError:
            return parts  # the socket takes nothing, or the transport meets the error too
        return [] if written == size else _after(parts, written)


def _after(parts: list[Buffer], written: int) -> list[Buffer]:
    """Return the parts without their first bytes."""
    for at, part in enumerate(parts):
        if written < len(part):
            return [memoryview(part)[written:], *parts[at + 1 :]]
        written -= len(part)
    return []
