"""The compacted copy of a log while a cleaning pass builds it: its entries, counters and index.

Rules
- Ranges of entries that stay whole are collected, and copied by one call of log.clean_copy.
- After each call the pass sleeps for a multiple of the time that the call took in Redis.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any, TypeVar
from uuid import uuid4

import msgspec

from korvet.log.entry import Entry, OffsetMap
from korvet.log.layouts import layout_of, with_records
from korvet.log.read_result import ReadResult
from korvet.scripts.call import Call, Reply
from korvet.scripts.calls.partition import CleanBeginReply
from korvet.store.calls import ReadCalls
from korvet.topics.table import Topic
from korvet.wire import batch_builder
from korvet.wire.records import BadBatch, Record

R = TypeVar("R", bound=Reply)

COPY_BYTES = 64 << 10
COPY_ENTRIES = 100
MOST_FIELDS = 7990
"""Max fields and values of an entry that a script can add: lua/lib/entry_limits.lua."""
THROTTLE_FACTOR = 9.0
"""Seconds of sleep per second that a call took in Redis."""
LONG_KEY = 32
"""Bytes above which a key is stored as its hash."""
UNREADABLE = b"this batch cannot be read"
"""The key that represents a batch that cannot be decoded; compared by identity."""
INDEX_BYTES = 65536
MAX_ROWS = 8000
"""Max rows: one script writes them all. In a larger copy they are further apart."""


class BusyTimer:
    """A store that measures how long its calls take; overlapping calls count once."""

    def __init__(self, store: ReadCalls) -> None:
        self._store = store
        self._began = self._spent = 0.0
        self._under_way = 0

    def submit_command(self, *command: Any) -> asyncio.Future[Any]:
        future = self._store.submit_command(*command)
        self._begin()
        future.add_done_callback(self._end)
        return future

    async def run(self, call: Call[R]) -> R:
        self._begin()
        try:
            return await self._store.run(call)
        finally:
            self._end()

    def spent(self) -> float:
        """Return the seconds spent in calls since the last call of this method."""
        spent, self._spent = self._spent, 0.0
        return spent

    def _begin(self) -> None:
        if not self._under_way:
            self._began = monotonic()
        self._under_way += 1

    def _end(self, _: object = None) -> None:
        self._under_way -= 1
        if not self._under_way:
            self._spent += monotonic() - self._began


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


def key_mark(key: bytes) -> bytes:
    """Return the key, or its hash if it is longer than LONG_KEY."""
    if len(key) <= LONG_KEY:
        return key
    return hashlib.blake2b(key, digest_size=LONG_KEY + 1).digest()


def entries_with_records(topic: Topic, result: ReadResult) -> list[tuple[Entry, list[Record]]]:
    """Return the slice's entries, each with its records.

    Markers and entries of aborted transactions have none.
    """
    return [
        (entry, _records_or_all(topic, entry) if has_records else [])
        for entry, has_records in with_records(layout_of(topic), result.entries, result.aborted)
    ]


def _records_or_all(topic: Topic, entry: Entry) -> list[Record]:
    """Return the entry's records.

    A batch that cannot be decoded has one UNREADABLE record, which always stays: so the batch does.
    """
    try:
        return layout_of(topic).records_of(topic, entry)
    except BadBatch:
        return [(entry.last, -1, UNREADABLE, b"", [])]


def rewrite_batch(entry: Entry, retained: list[Record]) -> list[bytes]:
    """Return a batch entry's fields with only these records, over the same offsets."""
    fields = list(entry.fields)
    at = fields.index(b"batch") + 1
    fields[at] = bytes(batch_builder.retain_records(fields[at], entry.first, entry.last, retained))
    return fields


class Outcome(msgspec.Struct):
    """Result of a pass over the entries below `limit`."""

    limit: int = -1
    kept: int = 0
    removed: int = 0
    size: int = 0
    records: int = 0
    tombstones: bool = False
    rows: list[str] = []


class CleanedIndex:
    """Sparse index of the compacted copy, built while entries are added."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, int, int, int]] = []
        self._step = INDEX_BYTES
        self._indexed = -INDEX_BYTES
        self._newest = -1

    def note(self, outcome: Outcome, offset: int, newest: int, size: int, count: int) -> None:
        """Count an entry that stays and begins at `offset`; add an index row if one is due."""
        if outcome.size - self._indexed >= self._step:
            if len(self._rows) == MAX_ROWS:
                self._rows, self._step = self._rows[::2], 2 * self._step
            self._rows.append((offset, self._newest, outcome.size, outcome.records))
            self._indexed = outcome.size
        self._newest = max(self._newest, newest)
        outcome.size += size
        outcome.records += count
        outcome.kept += 1

    def rows(self, start_bytes: int, start_records: int, plan: CleanBeginReply) -> list[str]:
        """Return the index rows in the format of lua/lib/index.lua.

        Values are capped by the log's counters at the limit, which do not count foreign entries:
        rows must never decrease.
        """
        return [
            f"{offset}:{min(newest, plan.newest)}:{min(start_bytes + size, plan.bytes)}"
            f":{min(start_records + count, plan.records)}"
            for offset, newest, size, count in self._rows
        ]
