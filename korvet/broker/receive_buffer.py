"""Bytes of one connection in, frames out of them, with bounds on what is kept.

Rules
- Small frames are cut out of a scratch buffer that all connections of a loop share (reading is
  synchronous, so it is free again before the next one reads); a large frame is received straight
  into its own buffer and never copied.
- A frame's announced length is checked before a byte of it is kept, and its buffer grows with what
  arrives: announcing much costs the announcer, not us.
- Only a request that carries records may be long: any other is at most `longest_control` bytes.
"""

from collections import deque
from typing import TypeAlias

Frame: TypeAlias = bytes | bytearray

SCRATCH = memoryview(bytearray(128 * 1024))
FIRST_CHUNK = 16 << 10
_KEY_AT, _VERSION_AT, _PEEK = 4, 6, 8


class BadFrame(Exception):
    """The announced length cannot be; `head` is what there is of the frame, its length first."""

    def __init__(self, length: int, longest: int, head: bytes, *, control: bool = False) -> None:
        super().__init__(f"a frame of {length} bytes: from 1 to {longest} are taken")
        self.head = head
        self.control = control


class ReceiveBuffer:
    """Cuts the stream of one connection into `frames`; `held` is how many bytes wait there."""

    __slots__ = (
        "_filled",
        "_frame",
        "_length",
        "_longest",
        "_longest_control",
        "_records_key",
        "_tail",
        "frames",
        "held",
    )

    def __init__(self, longest: int, longest_control: int, records_key: int) -> None:
        self.frames: deque[Frame] = deque()
        self.held = 0
        self._longest = longest
        self._longest_control = min(longest, longest_control)
        self._records_key = records_key.to_bytes(2, "big")
        self._tail = bytearray()
        self._frame: bytearray | None = None
        self._filled = 0
        self._length = 0

    def buffer(self) -> memoryview:
        """Where the next bytes go."""
        if self._frame is None:
            return SCRATCH
        return memoryview(self._frame)[self._filled :]

    def took(self, nbytes: int) -> None:
        """So many bytes are in the buffer; whole frames among them are in `frames`. BadFrame."""
        if self._frame is not None:
            self._fill(nbytes)
        else:
            self._cut(SCRATCH[:nbytes])

    def next(self) -> Frame:
        """The oldest whole frame, no longer kept here."""
        frame = self.frames.popleft()
        self.held -= len(frame)
        return frame

    def clear(self) -> None:
        """No frame waits."""
        self.frames.clear()
        self.held = 0

    @property
    def half(self) -> bytes | None:
        """The first bytes of a frame whose end has not come, length first; None between frames."""
        if self._frame is not None:
            return self._length.to_bytes(4, "big") + self._frame[: min(self._filled, 8)]
        return bytes(self._tail) if self._tail else None

    def _fill(self, nbytes: int) -> None:
        assert self._frame is not None
        self._filled += nbytes
        if self._filled < len(self._frame):
            return
        if self._filled < self._length:
            # Resizing needs the memoryviews gone: they were the loop's, and it is done with them.
            factor = 4 if self._filled < 1 << 20 else 2
            grown = bytearray(min(self._length, factor * self._filled))
            grown[: self._filled] = self._frame
            self._frame = grown
            return
        self._keep(self._frame)
        self._frame, self._filled = None, 0

    def _keep(self, frame: Frame) -> None:
        self.held += len(frame)
        self.frames.append(frame)

    def _cut(self, data: memoryview) -> None:
        """Frames out of the scratch buffer; what is left over is kept."""
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
                    break  # which request it is decides, and is not here yet
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
        """A frame that is not complete yet gets a buffer of its own."""
        frame = bytearray(min(length, max(FIRST_CHUNK, 4 * len(begun))))
        frame[: len(begun)] = begun
        self._frame, self._filled, self._length = frame, len(begun), length
