"""Length-prefixed frames: a big-endian length of four bytes, then that many bytes.

For tests and tools. The broker's connections keep a buffer of another kind, so that a large produce
request is received in place.
"""

import struct
from collections.abc import Iterator

from korvet.wire.errors import FrameTooLarge
from korvet.wire.primitives import Buffer

_LENGTH = struct.Struct(">i")

DEFAULT_LIMIT = 100 * 1024 * 1024
"""Default limit of a frame in bytes: Kafka's socket.request.max.bytes."""


def frame(*parts: Buffer) -> bytes:
    """Return one frame that holds `parts` in a row."""
    return b"".join((_LENGTH.pack(sum(map(len, parts))), *parts))


def frame_length(data: Buffer, offset: int = 0, limit: int = DEFAULT_LIMIT) -> int:
    """Return the length in the four bytes at `offset`. Raises FrameTooLarge."""
    length: int = _LENGTH.unpack_from(data, offset)[0]
    if not 0 <= length <= limit:
        raise FrameTooLarge(f"a frame of {length} bytes, at most {limit} are accepted")
    return length


class FrameReader:
    """Takes bytes as they arrive, returns complete frames without their length."""

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self._limit = limit
        self._rest = bytearray()

    def feed(self, data: Buffer) -> Iterator[bytes]:
        """Yield every complete frame; the rest waits for more bytes."""
        self._rest += data
        return self._whole()

    def _whole(self) -> Iterator[bytes]:
        while len(self._rest) >= _LENGTH.size:
            end = _LENGTH.size + frame_length(self._rest, 0, self._limit)
            if end > len(self._rest):
                return
            body = bytes(self._rest[_LENGTH.size : end])
            del self._rest[:end]
            yield body

    @property
    def pending(self) -> int:
        """Return the bytes held of an incomplete frame."""
        return len(self._rest)
