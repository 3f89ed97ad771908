"""Limit how much the event loop decompresses and decodes; a thread does the rest.

Rules
- A few hundred compressed bytes may hold 60 MB, or 100,000 records. In one turn of the event loop,
  TURN_BYTES are opened for all clients together, and MAX_AT_ONCE for one batch.
- What exceeds that is opened in one thread, one batch after another in the order of arrival. A
  connection has one batch there at a time, so clients take turns.
- So the memory for decompressed records is that of one batch, and that of the turn.
- A decoded record counts as RECORD_BYTES at least, each of its headers too: they are objects.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from korvet.base.buffers import CAPACITY, free_large, keep_large
from korvet.base.errors import ErrorCode
from korvet.store.calls import IS_INLINE
from korvet.topics.table import Topic
from korvet.wire import record_walk, records
from korvet.wire.records import BadBatch, BatchHeader, Buffer, Record

MAX_AT_ONCE = CAPACITY
"""Max bytes of one batch's records that the event loop opens: about a millisecond."""
TURN_BYTES = 4 << 20
"""Max bytes of records that one iteration of the event loop opens."""
RECORD_BYTES = 100
"""Bytes that take as long to open as it takes to decode one record, or one header."""

KEPT_S = 1.0
"""Seconds after the last batch when the thread's buffer is freed."""

T = TypeVar("T")


class OpensMuch(Exception):
    """The records must be opened in the thread."""


class Allowance:
    """The bytes that the caller may open itself; without `turn_bytes` there is no limit."""

    def __init__(self, turn_bytes: int | None = None) -> None:
        self._turn_bytes = turn_bytes
        self._left = turn_bytes
        self.opened = 0
        """Decompressed bytes so far."""

    def open(self, topic: Topic, batch: Buffer, header: BatchHeader) -> Buffer:
        """Return the batch's records, decompressed.

        Raises BadBatch as `records.open_section`, and OpensMuch.
        """
        if not header.codec:
            return records.open_section(batch, header, 0)
        section = self._within(
            len(batch),
            MAX_AT_ONCE,
            topic.policy.max_opened_bytes,
            lambda max_bytes: records.open_section(batch, header, max_bytes),
        )
        self._take(len(section))
        self.opened += len(section)
        return section

    def parse(
        self, size: int, limit: int, parse_within: Callable[[int], list[Record]]
    ) -> list[Record]:
        """Return the records of a message set of `size` bytes. Raises BadBatch and OpensMuch.

        Each of its messages is decoded, so the event loop takes an eighth of MAX_AT_ONCE.
        """
        found = self._within(size, MAX_AT_ONCE // 8, limit, parse_within)
        self._take(len(found) * RECORD_BYTES)
        self.opened += sum(len(row[2] or b"") + len(row[3] or b"") for row in found)
        return found

    def _within(self, size: int, max_opened: int, limit: int, work: Callable[[int], T]) -> T:
        """Return what `work` makes of `size` bytes, within `max_opened` or the rest of the turn."""
        if self._left is None:
            try:
                return work(limit)
            except BadBatch as bad:
                self.opened += limit if bad.error == ErrorCode.MESSAGE_TOO_LARGE else 0
                raise
        max_opened = min(self._left, max_opened)
        if size > max_opened:
            raise OpensMuch
        try:
            return work(min(limit, max_opened))
        except BadBatch as bad:
            self._take(max_opened)
            if bad.error != ErrorCode.MESSAGE_TOO_LARGE or limit <= max_opened:
                raise
            self._left = 0  # The next attempt of this turn does not try again.
            raise OpensMuch from None

    def decode(self, section: Buffer, count: int, *, is_checked: bool) -> None:
        """Allow that the section's `count` records are decoded. Raises BadBatch and OpensMuch.

        `is_checked`: `check_records` has accepted them.
        """
        if len(section) // 2 * RECORD_BYTES > MAX_AT_ONCE:  # a header has two bytes at least
            if not is_checked:
                record_walk.check_records(section, count)
            count += record_walk.survey(section, count).headers
        if self._left is not None and count * RECORD_BYTES > min(self._left, MAX_AT_ONCE):
            raise OpensMuch
        self._take(count * RECORD_BYTES)

    def _take(self, size: int) -> None:
        """Count bytes of this turn; the next iteration of the event loop begins another."""
        if self._left is None or not size:
            return
        if self._left == self._turn_bytes:
            asyncio.get_running_loop().call_soon(self._begin_turn)
        self._left = max(0, self._left - size)

    def _begin_turn(self) -> None:
        self._left = self._turn_bytes


class _Opener:
    """The thread that opens batches, and the timer that frees its buffer."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "opener", initializer=keep_large)
        self._freeing: asyncio.TimerHandle | None = None

    def run(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        loop = asyncio.get_running_loop()
        if self._freeing is not None:
            self._freeing.cancel()
        done = loop.run_in_executor(self._thread, work)
        self._freeing = loop.call_later(KEPT_S, self._thread.submit, free_large)
        return done


_opener = _Opener()


async def in_thread(work: Callable[[], T]) -> T:
    """Do work that opens batches in the thread when its turn comes; return its result.

    Without an event loop it is done here.
    """
    return work() if IS_INLINE.get() else await _opener.run(lambda: _without_frames(work))


def _without_frames(work: Callable[[], T]) -> T:
    """Do the work. The frames of a BadBatch hold its records until garbage is collected."""
    try:
        return work()
    except BadBatch as bad:
        bad.__context__ = None
        raise bad.with_traceback(None) from None
