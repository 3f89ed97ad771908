"""The reader of one store's partitions: from an offset on, bounded in bytes.

Rules
- One HMGET of the log's state and one XRANGE, in one pipeline (`entries_query`). Large batches far
  below the end are sent from where they were received (`range_reads`).
- A segment in a local directory also serves copied records that Redis has, to a reader that is far
  below the end and takes batches. If that would wait or fails, they are read from Redis.
- Values that are compressed at rest count as they are sent, in the state's bytes too.
- Entries of layout `record` above the log end in the state are foreign ones: log.number_entries
  numbers them, then both are read again.
- If the entries were far smaller than expected, ask for more, at most FILLS times.
- A committed read ends at the last stable offset, and lists the aborted transactions below it. The
  state is read first: a transaction that has ended by then is in the index of aborted ones.
  A reader at that offset has only the state read until it moves.
- An offset below the log start or above the end is OFFSET_OUT_OF_RANGE. Any other gives the next
  records, across gaps.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from korvet.base.errors import ErrorCode
from korvet.log.entries_query import EntriesQuery, take_rows
from korvet.log.entry import Entry
from korvet.log.layouts import layout_of
from korvet.log.leader_epochs import is_behind
from korvet.log.range_reads import RangeReads
from korvet.log.read_cache import ReadCache
from korvet.log.read_result import (
    Ranges,
    ReadRequest,
    ReadResult,
    RemoteReader,
    drop_uncommitted,
    outside,
)
from korvet.log.recent_states import Fields, RecentState, RecentStates, parse_state
from korvet.log.size_estimates import MAX_ENTRIES
from korvet.store.async_store import all_of
from korvet.store.calls import ReadCalls

FILLS = 3
"""Further XRANGEs of one read whose entries were smaller than expected."""


@dataclass(eq=False, repr=False)
class PartitionRead:
    """A read in progress: its request, the log's state as seen last, its offset and its result."""

    request: ReadRequest
    store: ReadCalls
    cache: ReadCache
    max_entries: int
    """Entries to ask for at most: no more than fit, once some were read."""
    remote: RemoteReader | None = None
    states: RecentStates | None = None
    ranges: RangeReads | None = None

    def __post_init__(self) -> None:
        request = self.request
        self._query = EntriesQuery(request, self.store, self.cache, self.max_entries)
        self._topic = request.topic
        self._partition = request.partition
        self._offset = request.offset
        self._key = self._query.key
        self._layout = layout_of(request.topic)
        self._result = ReadResult(ErrorCode.NONE)
        self._local_start = 0
        """The offset from which on Redis has the records; those below are in segments."""
        self._is_fresh = False
        """Whether the local start was read after the entries."""
        self._copied = 0
        """The offset up to which segments have the records."""
        self._known_end = -1
        """The end in the log's state: the entries that are read later may go further."""
        self._cleaned: bytes | None = None
        self._has_gap = False
        """Whether records before or between the entries may have left Redis meanwhile."""
        self._is_numbered = False
        """Whether this read has numbered foreign entries."""

    async def run(self) -> ReadResult:
        if await self._read_segments():
            return self._result
        while True:
            if self._is_in_segments():
                return await self._read_remote()
            await self._read_entries()
            result = self._result
            if result.error or result.batches:
                return result
            if self.remote is not None and self._may_have_gap():
                await self._read_local_start()
            if self._is_in_segments():
                return await self._read_remote()
            if not self.request.committed:
                break
            await drop_uncommitted(
                self.store, result, self._layout, self._key, self._offset, self._known_end
            )
            # After a cleaning the index of aborted transactions is newer than the entries.
            if not self._topic.policy.compact or await self._query.cleaned() == self._cleaned:
                break
        if self._offset < result.start or (not result.entries and self._offset > result.end):
            call = self._topic.partition(self._partition).list_offsets()
            return outside(await self.store.run(call), self._offset)
        return result

    async def _read_entries(self) -> None:
        """Set the result: from the cache, else from Redis, past entries without records."""
        while True:
            if await self._waits_for_transaction() or await self._read_cached():
                return
            rows, more = await self._read_rows()
            if self._result.error or self._result.batches:
                return
            if rows and not self._layout.holds_batches and await self._number(rows):
                continue
            full = self._take(rows, self._offset)
            if self._result.entries:
                if more and not full:
                    await self._fill()
                return
            after = self._query.offset_after(rows) if rows else -1
            if after > self._result.end and self._layout.holds_batches:  # no record can follow
                return
            if after <= self._offset:
                return
            self._offset = after

    async def _number(self, rows: Sequence[Any]) -> bool:
        """Number foreign entries above the log end; True if the state and entries are read again.

        An entry that a producer appended after the state was read looks the same.
        """
        if self._is_numbered or self._query.is_numbered(rows[-1][0], self._result.end):
            return False
        self._is_numbered = True
        size = sum(len(word) for _, fields in rows for word in fields)
        self.max_entries = 1 + self.request.max_bytes * len(rows) // max(size, 1)
        topic, partition = self._topic, self._partition
        await self.store.run(topic.partition(partition).number_entries())
        return True

    # The log's state.

    async def _read_state(self) -> None:
        self._use_state(await self.store.submit_command(*self._query.state()))

    async def _read_recent_state(self) -> None:
        """Use a state of the last milliseconds: records in segments hardly change."""
        states, where = self.states, (self._topic, self._partition)
        if states is None:
            await self._read_state()
            return
        recent = states.fresh(*where)
        self._use_state(await states.read(*where) if recent is None else recent.fields)

    def _use_state(self, fields: Fields) -> RecentState | None:
        """Begin the result with the log's state, and learn its sizes; None for an error."""
        state = parse_state(self._topic, fields, 0.0)
        if state is None:
            error = (
                ErrorCode.UNKNOWN_TOPIC_ID if fields[0] else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
            self._result = ReadResult(error)
            return None
        if is_behind(self.request.leader_epoch, state.epoch):
            self._result = ReadResult(ErrorCode.FENCED_LEADER_EPOCH, epoch=state.epoch)
            return None
        self.cache.learn_state(self._topic, self._partition, state)
        self._known_end, self._cleaned = state.end, fields[8]
        self._local_start, self._copied = state.local_start, state.copied
        self._result = ReadResult(
            ErrorCode.NONE,
            state.start,
            state.end,
            state.epoch,
            stable=state.stable,
            epochs=fields[12],
            appended=state.appended,
        )
        return state

    async def _read_local_start(self) -> None:
        found = await self.store.submit_command(*self._query.local_start())
        self._local_start = int(found or 0)

    # From segments.

    async def _read_segments(self) -> bool:
        """Read the state first if segments may have the records; True if a copy was read."""
        if self.cache.sizes.is_remote(self._topic, self._partition, self._offset):
            await self._read_recent_state()
            return False
        return self._is_copy_read() and await self._read_copy()

    def _is_in_segments(self) -> bool:
        return max(self._result.start, 0) <= self.request.offset < self._local_start

    def _may_have_gap(self) -> bool:
        """Return whether records may have left Redis after the local start was read."""
        is_empty = not self._result.entries and self._offset < self._known_end
        return self._has_gap or (is_empty and not self._is_fresh)

    def _is_copy_read(self) -> bool:
        """Return whether a segment is to serve records that Redis may have too."""
        request, remote = self.request, self.remote
        if remote is None or not request.batches:
            return False
        where = self._topic, self._partition, self._offset
        return self.cache.is_copy_read(*where, request.max_bytes) and remote.serves_copies

    async def _read_copy(self) -> bool:
        """Read copied records from a segment; False if they are to be read in another way."""
        await self._read_recent_state()
        is_copied = max(self._result.start, self._local_start) <= self._offset < self._copied
        if self._result.error or not is_copied or self.remote is None:
            return False
        return self.remote.read_copy(self.request, self._result)

    async def _read_remote(self) -> ReadResult:
        """Read records that left Redis; an error is retriable, whatever its cause."""
        result = self._result
        result.entries, result.size, result.aborted = [], 0, []
        if self.remote is None or not await self.remote.read(self.request, result):
            return ReadResult(ErrorCode.KAFKA_STORAGE_ERROR)
        return result

    # From the cache.

    async def _waits_for_transaction(self) -> bool:
        """Read only the state if an open transaction ended the last committed read here."""
        sizes, where = self.cache.sizes, (self._topic, self._partition, self._offset)
        if not self.request.committed or not sizes.is_open(*where):
            return False
        await self._read_state()
        return sizes.is_open(*where)

    async def _read_cached(self) -> bool:
        """Take the batches from the cache. Returns False if it lacks the first."""
        request, topic = self.request, self._topic
        # A cleaning changes stored batches.
        if not self._layout.holds_batches or topic.policy.compact:
            return False
        entries = self.cache.batches_from(topic, self._partition, self._offset, request.max_bytes)
        if not entries:
            return False
        # The state decides whether they may still be read.
        await self._read_state()
        if not self.cache.is_valid():
            return False
        if not self._result.error:
            self._add_cached(entries)
            await self._extend()
        return True

    def _add_cached(self, entries: list[Entry]) -> None:
        result = self._result
        result.entries += entries
        result.size += sum(entry.size for entry in entries)
        result.end = max(result.end, entries[-1].last + 1)

    async def _extend(self) -> None:
        """Add what the cache lacks: markers, and batches that other brokers appended."""
        result, request = self._result, self.request
        limit = self._known_end
        if request.committed:
            limit = min(limit, result.last_stable)
        at, room = result.entries[-1].last + 1, request.max_bytes - result.size
        average = result.size / len(result.entries)
        if at >= limit or room < average:
            return
        cached = self.cache.batches_from(self._topic, self._partition, at, room)
        if not cached:
            self._is_fresh = False
            rows, _ = await self._query.read(at, room, average, self._query.max_entries)
            self._take(rows, at)
        elif cached[0].size <= room:  # appended while the state was read
            self._add_cached(cached)

    # From Redis.

    async def _read_rows(self) -> tuple[list[Any], bool]:
        """Read the state and entries. Returns rows, and whether there may be more of them.

        Large batches are the result's already: no rows then.
        """
        query, request = self._query, self.request
        count = min(query.first_count(self._offset, request.max_bytes), self.max_entries)
        if not count:
            return await self._read_after_state()
        if self.ranges is not None:
            found = await self._read_range(self.ranges)
            if found is not None:
                return found
        submit = self.store.submit_command
        pending = [submit(*query.state()), submit(*query.entries(self._offset, count))]
        # In time mode almost each read begins in a gap.
        self._is_fresh = self.remote is not None and query.has_times
        if self._is_fresh:
            pending.append(submit(*query.local_start()))
        state, rows, *local = await all_of(pending)
        self._use_state(state)
        if local:
            self._local_start = int(local[0] or 0)
        return ([], False) if self._result.error else (rows, len(rows) == count)

    async def _read_after_state(self) -> tuple[list[Any], bool]:
        """Read the state and the index, then as many entries as they say."""
        query, max_bytes, self._is_fresh = self._query, self.request.max_bytes, False
        submitted = self.store.submit_command(*query.state())
        state, index = await all_of([submitted, query.submit_index(self._offset, max_bytes)])
        self._use_state(state)
        if self._result.error:
            return [], False
        average = query.average(self._offset)
        return await query.read(self._offset, max_bytes, average, self.max_entries, index)

    async def _read_range(self, ranges: RangeReads) -> tuple[list[Any], bool] | None:
        """Read large batches: set the result's, or return rows; None to read in another way."""
        request = replace(self.request, offset=self._offset)
        read = await ranges.read(request)
        if read is None:
            return None
        reply, state = read.range.reply, self._use_state(read.fields)
        if state is None:
            ranges.forget(read.range)
            return [], False
        self._is_fresh = True
        self._local_start = max(self._local_start, reply.local_start)
        found = ranges.take(read.range, request, state)
        if found is None:
            ranges.forget(read.range)
            rows = reply.rows if reply.has(self._topic.id, self._offset) else None
            return None if rows is None else (rows, len(rows) == read.range.count)
        self._result.set_batches(found.parts, found.next, found.records, found.size)
        return [], False

    async def _fill(self) -> None:
        """Ask for more, if the entries were far smaller than expected."""
        result, request = self._result, self.request
        for _ in range(FILLS):
            had, at = len(result.entries), result.entries[-1].last + 1
            max_entries = self._query.max_entries - had
            if 2 * result.size >= request.max_bytes or max_entries <= 0:
                return
            self._is_fresh = False
            rows, more = await self._query.read(
                at, request.max_bytes - result.size, result.size / had, max_entries
            )
            full = self._take(rows, at)
            if full or not more or len(result.entries) == had:
                return

    def _take(self, rows: Sequence[Any], offset: int) -> bool:
        """Add the entries of an XRANGE reply that fit. Returns whether one did not."""
        entries = self._result.entries
        had = len(entries)
        full = take_rows(rows, offset, self.request, self._result, self.cache)
        if len(entries) > had and entries[had].first > offset:
            self._has_gap |= not self._is_fresh
        return full


@dataclass(eq=False, repr=False)
class LogReader:
    """Reads partitions of one store, and caches sizes and up to `cache_bytes` of batches."""

    store: ReadCalls
    cache_bytes: int = 0
    max_entries: int = MAX_ENTRIES
    connection_epoch: Callable[[], int] = lambda: 0

    def __post_init__(self) -> None:
        self.remote: RemoteReader | None = None
        self.states: RecentStates | None = None
        """States of the last milliseconds, for consumers that catch up."""
        self.ranges: RangeReads | None = None
        """The reads of large batches, if the store has a connection for them."""
        self.cache = ReadCache(self.cache_bytes, self.connection_epoch)

    def use_ranges(self, ranges: Ranges, *, ahead: bool = True) -> None:
        """Read large batches far below the end on the store's connection for ranges.

        Those that a sequential reader needs next are read `ahead`.
        """
        self.states = RecentStates(self.store)
        self.ranges = RangeReads(
            ranges,
            self.store,
            self.cache,
            self.states,
            self.max_entries,
            self.connection_epoch,
            reads_ahead=ahead,
        )

    async def read(self, request: ReadRequest) -> ReadResult:
        """Return the entries from the request's offset on, at least one if there is one."""
        read = PartitionRead(
            request,
            self.store,
            self.cache,
            self.max_entries,
            remote=self.remote,
            states=self.states,
            ranges=self.ranges,
        )
        return await read.run()
