"""Read a large XRANGE of layout `batch` where it was received: one step per batch, no copy.

The replies are those to XRANGE and to HMGET of the log's bounds. Those to HMGET of the log's state
come first, if it is read with the entries.

Rules
- It takes entries as brokers append them: `batch`, `count`, `max.timestamp`. At any other entry,
  and at an error, it only looks for the end of the replies: `rows` then gives the parsed reply.
- A batch gets its offset and leader epoch in the buffer itself, which belongs to this reply alone.
"""

import re
import struct
from typing import Any, NamedTuple

from korvet.log.entry import DENSE_MS, natural_offset
from korvet.log.recent_states import BOUNDS
from korvet.store.raw_reply import parsed
from korvet.store.resp import end_of
from korvet.wire.records import HEADER_SIZE, MAX_SPAN

ENTRY_OVERHEAD = 128
"""Bytes of a reply per entry, without its fields."""
_STATE_BYTES = 512
_ARRAY = re.compile(rb"\*(\d+)\r\n")
_VALUE = re.compile(rb"\$(?:-1\r\n|\d+\r\n([^\r\n]*)\r\n)")
_HEAD = re.compile(rb"\*2\r\n\$\d+\r\n(\d+)-(\d+)\r\n\*6\r\n\$5\r\nbatch\r\n\$(\d+)\r\n")
_TAIL = re.compile(
    rb"\r\n\$5\r\ncount\r\n\$\d+\r\n(\d{1,16})\r\n\$13\r\nmax\.timestamp\r\n\$\d+\r\n-?\d+\r\n()"
    rb"(?:" + _HEAD.pattern + rb")?"
)
"""The end of an entry, and the beginning of the next one if that has arrived."""
_LEAST_TAIL = 48
_DENSE = b"%d" % DENSE_MS
_OFFSET, _EPOCH, _EPOCH_AT = struct.Struct(">q"), struct.Struct(">i"), 12


class Batches(NamedTuple):
    """Stored batches at their offsets."""

    parts: list[memoryview]
    offsets: list[int]
    """From which on each was read: the end of the one before."""
    first: int
    next: int
    """The offset after them."""
    records: int
    size: int


class BatchReply:
    """The replies of one range; complete once `read` has returned their end."""

    def __init__(self, count: int, average: float, bits: int | None, *, with_state: bool) -> None:
        """Expect `count` entries; `bits` of an id's sequence are of the offset in time mode."""
        self.size = int(count * (average + ENTRY_OVERHEAD)) + _STATE_BYTES
        self.state: list[bytes | None] = []
        """The values of the log's state; empty without it, or for an error."""
        self.bounds: list[bytes | None] = []
        """Topic id, start and local start after the entries were read; empty for an error."""
        self._with_state = with_state
        self._bits = bits
        self._view = memoryview(b"")
        self.restart()

    def restart(self) -> None:
        """Forget all positions: the bytes have moved."""
        self._begin = self._at = self._left = -1
        self._needed = 0
        self._is_plain = True
        self._batches: list[tuple[int, int, int, int]] = []

    def read(self, view: memoryview, start: int, end: int) -> int:
        """Return the position after the replies; -1 if they are incomplete."""
        if end < self._needed or (self._left < 0 and not self._read_beginning(view, start, end)):
            return -1
        if self._left and not self._read_entries(view, end):
            return -1
        stop = end_of(view, self._at, end)
        if stop >= 0:
            self.bounds = _values(view, self._at, stop)
            self._view = view[self._begin : self._at]
        return stop

    def has(self, topic_id: str, offset: int) -> bool:
        """Return whether the log was still the topic's, with the offset, once entries were read."""
        if len(self.bounds) != len(BOUNDS):
            return False
        owner, start, _ = self.bounds
        return owner == topic_id.encode() and offset >= int(start or 0)

    @property
    def local_start(self) -> int:
        """Return from which offset on Redis had the records, once entries were read."""
        return int(self.bounds[2] or 0) if self.bounds else 0

    @property
    def rows(self) -> Any:
        """Return the reply to XRANGE, parsed; None if it is an error."""
        rows = parsed(self._view)
        return rows if isinstance(rows, list) else None

    def take(self, offset: int, max_bytes: int, epoch: int) -> Batches | None:
        """Return the batches that fit `max_bytes`, at least one, for a read from `offset` on.

        None if there is none, or if an entry is no plain batch.
        """
        if not self._is_plain or not self._batches:
            return None
        first = self._batches[0][0] - self._batches[0][1] + 1
        whole = memoryview(self._view.obj)
        parts: list[memoryview] = []
        offsets: list[int] = []
        size = records = 0
        following = offset
        for last, count, at, stop in self._batches:
            length = stop - at
            if parts and (size + length > max_bytes or last - first > MAX_SPAN):
                break
            _OFFSET.pack_into(whole, at, last - count + 1)
            _EPOCH.pack_into(whole, at + _EPOCH_AT, epoch)
            parts.append(whole[at:stop])
            offsets.append(following)
            size += length
            records += count
            following = last + 1
        return Batches(parts, offsets, first, following, records, size)

    # Implementation.

    def _read_beginning(self, view: memoryview, start: int, end: int) -> bool:
        """Read the state and the number of entries. Returns False if they are incomplete."""
        begin = end_of(view, start, end) if self._with_state else start
        if begin < 0:
            return False
        found = _ARRAY.match(view, begin, end)
        if found is None:  # an error, or the beginning of a number
            stop = end_of(view, begin, end)
            if stop < 0:
                return False
            self._begin, self._at, self._left, self._is_plain = begin, stop, 0, False
            return True
        self.state = _values(view, start, begin)
        self._begin, self._at, self._left = begin, found.end(), int(found[1])
        return True

    def _read_entries(self, view: memoryview, end: int) -> bool:
        """Go past the received entries. Returns False if one is incomplete."""
        if self._left and self._is_plain:
            self._read_batches(view, end)
        if not self._left:
            return True
        return end >= self._needed and self._skip_entries(view, end)

    def _read_batches(self, view: memoryview, end: int) -> None:
        """Go past the received batches, up to one that is incomplete or another entry."""
        found, at, left = self._batches, self._at, self._left
        head = _HEAD.match(view, at, end)
        if head is None:
            return
        start, (milliseconds, sequence, length) = head.end(), head.groups()
        while left and milliseconds is not None:
            stop = start + int(length)
            if end < stop + _LEAST_TAIL:
                self._needed = stop + _LEAST_TAIL
                break
            tail = _TAIL.match(view, stop, end)
            last = self._offset_of(milliseconds, int(sequence))
            if tail is None or last < 0 or stop - start < HEADER_SIZE:
                break
            count, _, milliseconds, sequence, length = tail.groups()
            found.append((last, int(count), start, stop))
            start, at, left = tail.end(), tail.end(2), left - 1
        self._at, self._left = at, left

    def _skip_entries(self, view: memoryview, end: int) -> bool:
        """Go to the end of the entries. Returns False if one is incomplete."""
        while self._left:
            stop = end_of(view, self._at, end)
            if stop < 0:
                return False
            self._is_plain = False
            self._at = stop
            self._left -= 1
        return True

    def _offset_of(self, milliseconds: bytes, sequence: int) -> int:
        """Return the offset of an id; -1 if it has none."""
        if self._bits is None:
            return sequence if milliseconds == _DENSE else -1
        found = natural_offset("time", self._bits, int(milliseconds), sequence)
        return -1 if found is None else found


def _values(view: memoryview, start: int, end: int) -> list[bytes | None]:
    """Return the values of an HMGET reply; none for another reply."""
    found = _ARRAY.match(view, start, end)
    if found is None:
        return []
    return [value or None for value in _VALUE.findall(view, found.end(), end)]
