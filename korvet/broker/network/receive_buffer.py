"""Receive the bytes of a connection and cut them into frames, with limits on memory.

Rules
- Small frames are cut out of a scratch buffer that all connections of an event loop share: reading
  is synchronous, so it is free before the next read. A large frame is received directly into a
  separate buffer and never copied.
- A frame's length is checked before any byte is stored, and its buffer grows with the bytes
  received: a large length alone takes no memory.
- Only a request with records may be long: any other is limited to `longest_control` bytes.
"""

import threading
from collections import deque
from collections.abc import Iterable
from typing import TypeAlias

Frame: TypeAlias = bytes | bytearray

SCRATCH_BYTES = 128 * 1024
FIRST_CHUNK = 16 << 10
_KEY_AT, _VERSION_AT, _PEEK = 4, 6, 8


class _Scratch(threading.local):
    """The scratch buffer of each thread: a process may run several event loops."""

    def __init__(self) -> None:
        self.buffer = memoryview(bytearray(SCRATCH_BYTES))


_scratch = _Scratch()


class BadFrame(Exception):
    """A frame of invalid length; `head` is the start of the frame, its length first."""

    def __init__(self, length: int, longest: int, head: bytes, *, control: bool = False) -> None:
        super().__init__(f"a frame of {length} bytes: 1 to {longest} are accepted")
        self.head = head
        self.control = control


class ReceiveBuffer:
    """Receive buffer of one connection; `frames` holds the complete ones, `queued` their bytes."""

    __slots__ = (
        "_filled",
        "_frame",
        "_length",
        "_longest",
        "_longest_control",
        "_max_control",
        "_records_key",
        "_scratch",
        "_tail",
        "frames",
        "queued",
    )

    def __init__(self, longest: int, longest_control: int, records_key: int) -> None:
        self.frames: deque[Frame] = deque()
        self.queued = 0
        self._scratch = _scratch.buffer
        self._max_control = longest_control
        self.limit(longest)
        self._records_key = records_key.to_bytes(2, "big")
        self._tail = bytearray()
        self._frame: bytearray | None = None
        self._filled = 0
        self._length = 0

    def limit(self, longest: int) -> None:
        """Accept frames of at most that many bytes from now on."""
        self._longest = longest
        self._longest_control = min(longest, self._max_control)

    def buffer(self) -> memoryview:
        """Return the memory for the next bytes."""
        if self._frame is None:
            return self._scratch
        return memoryview(self._frame)[self._filled :]

    def took(self, nbytes: int) -> None:
        """Process that many new bytes; complete frames are added to `frames`. Raises BadFrame."""
        if self._frame is not None:
            self._fill(nbytes)
        else:
            self._cut(self._scratch[:nbytes])

    def next(self) -> Frame:
        """Remove and return the oldest complete frame."""
        frame = self.frames.popleft()
        self.queued -= len(frame)
        return frame

    def keep(self, frames: Iterable[Frame]) -> None:
        """Drop all complete frames except these."""
        self.clear()
        for frame in frames:
            self._keep(frame)

    def clear(self) -> None:
        """Drop all complete frames."""
        self.frames.clear()
        self.queued = 0

    @property
    def reserved(self) -> int:
        """Length of the frame that is received in part, 0 between frames."""
        return 0 if self._frame is None else self._length

    @property
    def half(self) -> bytes | None:
        """First bytes of an incomplete frame, length first; None between frames."""
        if self._frame is not None:
            return self._length.to_bytes(4, "big") + self._frame[: min(self._filled, 8)]
        return bytes(self._tail) if self._tail else None

    def _fill(self, nbytes: int) -> None:
        assert self._frame is not None
        self._filled += nbytes
        if self._filled < len(self._frame):
            return
        if self._filled < self._length:
            # A new buffer, since the old one cannot be resized while the event loop has a
            # memoryview.
            factor = 4 if self._filled < 1 << 20 else 2
            grown = bytearray(min(self._length, factor * self._filled))
            grown[: self._filled] = self._frame
            self._frame = grown
            return
        self._keep(self._frame)
        self._frame, self._filled = None, 0

    def _keep(self, frame: Frame) -> None:
        self.queued += len(frame)
        self.frames.append(frame)

    def _cut(self, data: memoryview) -> None:
        """Cut frames out of the scratch buffer and store the remaining bytes."""
        if self._tail:
            self._tail += data
            data = memoryview(bytes(self._tail))
            self._tail.clear()
        at, end = 0, len(data)
        while end - at >= _KEY_AT:
            length = int.from_bytes(data[at : at + _KEY_AT], "big", signed=True)
            if not 0 < length <= self._longest:
                raise BadFrame(length, self._longest, bytes(data[at : at + _PEEK]))
            if length > self._longest_control:
                if end - at < _PEEK:
                    break  # the API key, which decides the limit, is not received yet
                if data[at + _KEY_AT : at + _VERSION_AT] != self._records_key:
                    head = bytes(data[at : at + _PEEK])
                    raise BadFrame(length, self._longest_control, head, control=True)
            if at + _KEY_AT + length > end:
                self._start(length, data[at + _KEY_AT :])
                return
            self._keep(bytes(data[at + _KEY_AT : at + _KEY_AT + length]))
            at += _KEY_AT + length
        self._tail += data[at:]

    def _start(self, length: int, begun: memoryview) -> None:
        """Allocate a buffer for an incomplete frame."""
        frame = bytearray(min(length, max(FIRST_CHUNK, 4 * len(begun))))
        frame[: len(begun)] = begun
        self._frame, self._filled, self._length = frame, len(begun), length
