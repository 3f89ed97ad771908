"""Length-prefixed frames: four bytes of big-endian length, then that many bytes.

For tests and tools. The broker's connections keep their own buffer, so that a large produce
request is received in place.
"""

import struct
from collections.abc import Iterator

from korvet.wire.errors import FrameTooLarge
from korvet.wire.primitives import Buffer

_LENGTH = struct.Struct(">i")

DEFAULT_LIMIT = 100 * 1024 * 1024
"""The largest frame accepted unless told otherwise: Kafka's socket.request.max.bytes."""


def frame(*parts: Buffer) -> bytes:
    """One frame that holds `parts` in a row."""
    return b"".join((_LENGTH.pack(sum(map(len, parts))), *parts))


def frame_length(data: Buffer, offset: int = 0, limit: int = DEFAULT_LIMIT) -> int:
    """The length announced in the four bytes at `offset`, or FrameTooLarge."""
    length: int = _LENGTH.unpack_from(data, offset)[0]
    if not 0 <= length <= limit:
        raise FrameTooLarge(f"a frame of {length} bytes, at most {limit} are accepted")
    return length


class FrameReader:
    """Takes bytes as they arrive, gives whole frames without their length."""

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self._limit = limit
        self._rest = bytearray()

    def feed(self, data: Buffer) -> Iterator[bytes]:
        """Every frame that is whole now, one at a time; what is left over waits for more."""
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
        """How many bytes of an unfinished frame are held."""
        return len(self._rest)
