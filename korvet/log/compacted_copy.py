"""The compacted copy of a log while a cleaning pass builds it.

Rules
- Ranges of entries that stay whole are collected, and copied by one call of log.clean_copy.
- After each call the pass sleeps for a multiple of the time that the call took in Redis.
"""

from collections.abc import Awaitable, Callable
from uuid import uuid4

from korvet.log.busy_timer import BusyTimer, R
from korvet.log.entry import Entry
from korvet.log.entry_id import OffsetMap
from korvet.scripts.call import Call
from korvet.topics.table import Topic

COPY_BYTES = 64 << 10
COPY_ENTRIES = 100
MOST_FIELDS = 7990
"""Max fields and values of an entry that a script can add: lua/lib/entry_limits.lua."""
THROTTLE_FACTOR = 9.0
"""Seconds of sleep per second that a call took in Redis."""


class Superseded(Exception):
    """Another pass has taken over, the log start has moved, or the compacted copy lacks entries."""


class CompactedCopy:
    """The copy of one pass. `token` identifies the pass, `length` is the copy's entries so far."""

    def __init__(
        self,
        store: BusyTimer,
        topic: Topic,
        partition: int,
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self.partition = topic.partition(partition)
        self.token = uuid4().hex
        self.length = 0
        self.log_stream, self.log_key = self.partition.stream, self.partition.log
        self._stream = self.partition.compacted
        self._store = store
        self.places = OffsetMap(topic.policy.offset_mode, topic.policy.offset_bits)
        self._sleep = sleep
        self._ranges: list[tuple[str, str]] = []
        self._waiting_bytes = self._waiting_entries = 0
        self._gap = True

    async def call(self, call: Call[R], factor: float = THROTTLE_FACTOR) -> R:
        """Run the call, then throttle."""
        reply = await self._store.run(call)
        await self.throttle(factor)
        return reply

    async def throttle(self, factor: float = THROTTLE_FACTOR) -> None:
        """Sleep for the time that was spent in Redis since the last sleep, times `factor`."""
        await self._sleep(self._store.spent() * factor)

    async def delete(self) -> None:
        """Delete the copy."""
        await self._store.submit_command("UNLINK", self._stream)

    def skip(self) -> None:
        """Leave out an entry: the next one begins another range."""
        self._gap = True

    async def copy_whole(self, entry: Entry, size: int) -> None:
        """Copy an entry whole, in one range with adjacent ones."""
        at = self._id(entry)
        if len(entry.fields) > MOST_FIELDS:
            return await self.rewrite(entry, entry.fields)
        if self._gap or not self._ranges:
            self._ranges.append((at, at))
        else:
            self._ranges[-1] = (self._ranges[-1][0], at)
        self._gap = False
        self._waiting_bytes += size
        self._waiting_entries += 1
        if self._waiting_bytes >= COPY_BYTES or self._waiting_entries >= COPY_ENTRIES:
            await self.flush()

    async def flush(self) -> None:
        """Copy the ranges that were collected. Raises Superseded."""
        if not self._ranges:
            return
        ranges, self._ranges = self._ranges, []
        self._waiting_bytes = self._waiting_entries = 0
        reply = await self.call(
            self.partition.clean_copy(ranges, token=self.token, length=self.length)
        )
        if reply.error:
            raise Superseded
        self.length += reply.copied

    async def rewrite(self, entry: Entry, fields: list[bytes]) -> None:
        """Add an entry with other fields than in the log. Raises Superseded."""
        await self.flush()
        self._gap = True
        at = self._id(entry)
        if len(fields) > MOST_FIELDS:
            return await self.add(at, fields)
        reply = await self.call(
            self.partition.clean_rewrite(fields, token=self.token, length=self.length, id=at)
        )
        if reply.error:
            raise Superseded
        self.length += 1

    async def add(self, at: str | bytes, fields: list[bytes]) -> None:
        """Add the entry to the compacted copy by XADD, whatever its number of fields."""
        options = ("NOMKSTREAM",) if self.length else ()
        await self._store.submit_command("XADD", self._stream, *options, at, *fields)
        self.length += 1
        await self.throttle()

    def _id(self, entry: Entry) -> str:
        return self.places.id(entry.last)
