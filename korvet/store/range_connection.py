"""A connection for large ranges: replies stay in the buffer that they are received into.

Rules
- A range is several commands: the entries, and what belongs to them. Its `RangeReply` reads their
  replies where they are. Every other command is answered as on any connection.
- Buffers are lent (`ReadBuffers`): the views that a reply keeps hold its buffer.
- Received bytes after a range's replies belong to the next command; they are copied.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import hiredis

from korvet.base.buffers import UNIT, ReadBuffers
from korvet.scripts.call import Arg
from korvet.store.connection import WRITTEN_AT_ONCE, Owner, PendingCommand, PipelinedConnection
from korvet.store.resp import NOTHING, BadReply, end_of, reader
from korvet.store.send_buffers import enlarge

POOL_BYTES = 16 << 20
"""Bytes of buffers that a connection keeps."""
TURN_BYTES = 512 * 1024
"""Bytes to receive in one iteration of the event loop, about 0.1 ms."""
SHORT_TURN_BYTES = 64 * 1024
"""Bytes to receive in one iteration while commands on other connections wait for replies."""
SLACK = 64 * 1024
"""Bytes by which replies may be larger than expected before they are moved."""


class RangeReply(Protocol):
    """The reader of a range's replies."""

    size: int
    """Expected bytes of the replies."""

    def read(self, view: memoryview, start: int, end: int) -> int:
        """Read the replies, which begin at `start`, as far as they are received: until `end`.

        Returns the position after them; -1 if they are incomplete. Raises BadReply.
        """

    def restart(self) -> None:
        """Forget all positions: the bytes have moved."""


class PendingRange(PendingCommand):
    """A range in flight: its commands, and the reader of its replies."""

    __slots__ = ("commands", "reply")

    def __init__(
        self, future: Any, commands: Sequence[Sequence[Arg]], reply: RangeReply, started: float
    ) -> None:
        super().__init__(future, None, commands[0], started)
        self.commands = commands
        self.reply = reply


class RangeConnection(PipelinedConnection):
    """A pipelined connection whose large replies are not copied."""

    def __init__(self, owner: Owner, timeout_s: float) -> None:
        super().__init__(owner, timeout_s)
        self._buffers = ReadBuffers(POOL_BYTES)
        self._view = self._buffers.take(UNIT)
        self._start = self._end = 0
        self._is_enlarged = False
        """Whether Redis has a large buffer to send from, if it can have one."""
        self._received = 0
        """Bytes received in this iteration."""
        self._turn = TURN_BYTES
        """Bytes to receive before others have their turn."""
        self._is_paused = False

    def send_range(self, pending: PendingRange) -> None:
        """Send the range's commands with this iteration's write."""
        if self._transport is None:
            self._hold(pending)
            return
        if not self._is_enlarged:
            self._is_enlarged = True
            sock = self._transport.get_extra_info("socket")
            if sock is not None:
                enlarge(sock)
        pending.size = sum([self._packer.add(command) for command in pending.commands])
        self.pending_bytes += pending.size
        self._pending.append(pending)
        if pending.size >= WRITTEN_AT_ONCE:
            self._write()
        elif not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    # Called by the transport.

    def get_buffer(self, sizehint: int) -> memoryview:
        if not self._end and len(self._view) != self._room():
            self._move(self._room())
        elif self._end == len(self._view):
            self._move(2 * (self._end - self._start) + UNIT)
        head, end = self.oldest, len(self._view)
        if isinstance(head, PendingRange):
            expected = self._start + head.reply.size
            if self._end < expected:  # what follows belongs to the next command
                end = expected
        self._turn = SHORT_TURN_BYTES if self._owner.others_wait else TURN_BYTES
        return self._view[self._end : min(end, self._end + self._turn)]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        self._note_received(nbytes)
        try:
            while self._start < self._end and self._read_next():
                pass
        except (BadReply, hiredis.ProtocolError, IndexError) as error:
            self.close(f"invalid reply from Redis: {error}")
            return
        self._owner.progressed()
        if self._retiring:
            self._end_if_idle()

    # Implementation.

    def _note_received(self, nbytes: int) -> None:
        """Pause after a turn until the next iteration."""
        if not self._received:
            self._loop.call_soon(self._end_turn)
        self._received += nbytes
        if self._received >= self._turn and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()

    def _end_turn(self) -> None:
        self._received = 0
        transport = self._transport
        if self._is_paused and transport is not None and not transport.is_closing():
            transport.resume_reading()
        self._is_paused = False

    def _read_next(self) -> bool:
        """Read the oldest command's reply. Returns False if it is incomplete."""
        pending, view, start = self._pending[0], self._view, self._start
        if isinstance(pending, PendingRange):
            stop = pending.reply.read(view, start, self._end)
            if stop < 0:
                return False
            self._pending.popleft()
            self._start = stop
            # The reply's views stay valid: this buffer is not received into again.
            self._move(self._room())
            self._deliver(pending, None)
            return True
        stop = end_of(view, start, self._end)
        if stop < 0:
            return False
        parser = reader()
        parser.feed(view[start:stop].tobytes())
        reply = parser.gets()
        if reply is NOTHING:
            raise BadReply("the reply has another length than it says")
        self._pending.popleft()
        self._start = stop
        if stop == self._end:
            self._start = self._end = 0
        self._deliver(pending, reply)
        return True

    def _room(self) -> int:
        """Return the bytes of a buffer for the oldest command's reply."""
        head = self.oldest
        return head.reply.size + SLACK if isinstance(head, PendingRange) else UNIT

    def _move(self, size: int) -> None:
        """Continue in a buffer of at least that size; the bytes not read yet are moved to it."""
        unread = self._view[self._start : self._end]
        taken = self._buffers.take(max(size, len(unread)))
        taken[: len(unread)] = unread
        self._view, self._start, self._end = taken, 0, len(unread)
        if isinstance(head := self.oldest, PendingRange):
            head.reply.restart()
