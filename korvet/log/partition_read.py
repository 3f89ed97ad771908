"""Read a partition from an offset: the log's state and its entries, bounded in bytes.

Rules
- One HMGET of the log's state and one XRANGE, in one pipeline. XRANGE counts entries, not bytes:
  COUNT comes from the expected size of entries. Its end comes from the sparse index if the largest
  entry could make that far too much (`korvet/log/size_estimates.py`).
- Values that are compressed at rest count as they are sent, in the state's bytes too.
- If no sizes are known, or they are stale, read the state and the index first, then the entries;
  at the end of the log, the state and FEW_ENTRIES together.
- If the entries were far smaller than expected, ask for more, at most FILLS times.
- A committed read ends at the last stable offset, and lists the aborted transactions below it. The
  state is read first: a transaction that has ended by then is in the index of aborted ones.
  A reader at that offset has only the state read until it moves.
- An offset below the log start or above the end is OFFSET_OUT_OF_RANGE. Any other gives the next
  records, across gaps. In time mode, on a promoted server, an offset between the end and now counts
  as the end: its reader has read records that the failover lost, and continues with new ones.
"""

import asyncio
from collections.abc import Callable, Sequence
from time import time
from typing import Any

from korvet.errors import ErrorCode
from korvet.keys import Keys
from korvet.log.entry import Entry
from korvet.log.entry_id import DENSE_MS, entry_id, split_id
from korvet.log.layouts import layout_of
from korvet.log.read_cache import ReadCache
from korvet.log.read_request import ReadRequest
from korvet.log.read_result import ReadResult, RemoteReader, drop_uncommitted
from korvet.log.recent_states import STATE, RecentStates
from korvet.log.size_estimates import count_for, index_rows_for, range_end
from korvet.scripts import log
from korvet.store.async_store import ignore_result
from korvet.store.calls import ReadCalls
from korvet.wire import records

LARGEST, CLEANED = STATE[6], STATE[8]
FILLS = 3
"""Further XRANGEs of one read whose entries were smaller than expected."""


class PartitionRead:
    """A read in progress: its request, its offset and its result."""

    def __init__(
        self,
        request: ReadRequest,
        store: ReadCalls,
        keys: Keys,
        cache: ReadCache,
        max_entries: int,
        is_promoted: Callable[[str], bool],
        remote: RemoteReader | None = None,
        states: RecentStates | None = None,
    ) -> None:
        topic = request.topic
        self._request = request
        self._store = store
        self._keys = keys
        self._cache = cache
        self._max_entries = max_entries
        self._is_promoted = is_promoted
        self._remote = remote
        self._states = states
        self._local_start = 0
        """The offset from which on Redis has the records; those below are in segments."""
        self._is_fresh = False
        """Whether the local start was read after the entries."""
        self._has_gap = False
        """Whether records before or between the entries may have left Redis meanwhile."""
        self._topic = topic
        self._partition = request.partition
        self._layout = layout_of(topic)
        self._key = keys.partition(topic.name, request.partition)
        self._offset = request.offset
        self._result = ReadResult(ErrorCode.NONE)
        self._known_end = -1
        """The end in the log's state: the entries that are read later may go further."""
        self._cleaned: bytes | None = None

    async def run(self) -> ReadResult:
        if self._cache.sizes.is_remote(self._topic, self._partition, self._offset):
            await self._read_recent_state()
        while True:
            if self._is_in_segments():
                return await self._read_remote()
            await self._read_entries()
            result = self._result
            if result.error:
                return result
            if self._remote is not None and self._may_have_gap():
                await self._read_local_start()
            if self._is_in_segments():
                return await self._read_remote()
            if not self._request.committed:
                break
            await drop_uncommitted(
                self._store, result, self._layout, self._key, self._offset, self._known_end
            )
            # After a cleaning the index of aborted transactions is newer than the entries.
            if not self._topic.policy.compact or await self._read_cleaned() == self._cleaned:
                break
        if self._offset < result.start or (not result.entries and self._offset > result.end):
            return await self._read_bounds()
        return result

    async def _read_entries(self) -> None:
        """Set the result: from the cache, else from Redis, past entries without records."""
        while True:
            if await self._waits_for_transaction() or await self._read_cached():
                return
            rows, more = await self._query()
            if self._result.error:
                return
            full = self._take(rows, self._offset)
            if self._result.entries:
                if more and not full:
                    await self._fill()
                return
            after = self._offset_after(rows) if rows else -1
            if after <= self._offset:
                return
            self._offset = after

    # From segments.

    def _is_in_segments(self) -> bool:
        return max(self._result.start, 0) <= self._request.offset < self._local_start

    def _may_have_gap(self) -> bool:
        """Return whether records may have left Redis after the local start was read."""
        is_empty = not self._result.entries and self._offset < self._known_end
        return self._has_gap or (is_empty and not self._is_fresh)

    async def _read_local_start(self) -> None:
        found = await self._submit_local_start()
        self._local_start = int(found or 0)

    def _submit_local_start(self) -> "asyncio.Future[Any]":
        return self._store.submit_command("HGET", self._key.log, "local_start")

    async def _read_remote(self) -> ReadResult:
        """Read records that left Redis; an error is retriable, whatever its cause."""
        result = self._result
        result.entries, result.size, result.aborted = [], 0, []
        if self._remote is None or not await self._remote.read(self._request, result):
            return ReadResult(ErrorCode.KAFKA_STORAGE_ERROR)
        return result

    # From the cache.

    async def _waits_for_transaction(self) -> bool:
        """Read only the state if an open transaction ended the last committed read here."""
        sizes, where = self._cache.sizes, (self._topic, self._partition, self._offset)
        if not self._request.committed or not sizes.is_open(*where):
            return False
        await self._read_state()
        return sizes.is_open(*where)

    async def _read_cached(self) -> bool:
        """Take the batches from the cache. Returns False if it lacks the first."""
        request, topic = self._request, self._topic
        # A cleaning changes stored batches.
        if not self._layout.holds_batches or topic.policy.compact:
            return False
        entries = self._cache.batches_from(topic, self._partition, self._offset, request.max_bytes)
        if not entries:
            return False
        # The state decides whether they may still be read.
        await self._read_state()
        if not self._cache.is_valid():
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
        result, request = self._result, self._request
        limit = self._known_end
        if request.committed:
            limit = min(limit, result.last_stable)
        at, room = result.entries[-1].last + 1, request.max_bytes - result.size
        average = result.size / len(result.entries)
        if at >= limit or room < average:
            return
        cached = self._cache.batches_from(self._topic, self._partition, at, room)
        if not cached:
            rows, _ = await self._query_range(at, room, average, self._max_entries)
            self._take(rows, at)
        elif cached[0].size <= room:  # appended while the state was read
            self._add_cached(cached)

    # From Redis.

    async def _query(self) -> tuple[list[Any], bool]:
        """Read the state and entries. Returns rows, and whether there may be more of them."""
        count = self._first_count()
        submit, request = self._store.submit_command, self._request
        pending = [submit("HMGET", self._key.log, *STATE)]
        # In time mode almost each read begins in a gap.
        self._is_fresh = bool(count) and self._remote is not None and self._has_times
        if count:
            start = self._id(self._offset)
            pending.append(submit("XRANGE", self._key.stream, start, "+", "COUNT", count))
        else:
            pending.append(self._submit_index(self._offset, request.max_bytes))
        if self._is_fresh:
            pending.append(self._submit_local_start())
        try:
            self._use_state(await pending[0])
            rows = await pending[1]
            if self._is_fresh:
                self._local_start = int(await pending[2] or 0)
        except BaseException:
            for each in pending:
                ignore_result(each)
            raise
        if self._result.error:
            return [], False
        if count:
            return rows, len(rows) == count
        where = self._topic, self._partition, self._offset
        average = self._cache.sizes.average(*where)
        most = self._max_entries
        return await self._query_range(self._offset, request.max_bytes, average, most, rows)

    def _first_count(self) -> int:
        """Return how many entries to ask for together with the state; 0: read the state first."""
        sizes, max_bytes = self._cache.sizes, self._request.max_bytes
        known = sizes.get(self._topic, self._partition)
        if known is None:
            return 0
        average = sizes.average(self._topic, self._partition, self._offset)
        count = count_for(max_bytes, average, self._max_entries)
        if known.is_stale or known.may_exceed(count, max_bytes):
            at_end = self._offset >= known.end
            return min(count, known.count_at_end(max_bytes)) if at_end else 0
        return count

    async def _query_range(
        self,
        offset: int,
        max_bytes: int,
        average: float,
        most: int,
        index: Sequence[bytes] | None = None,
    ) -> tuple[list[Any], bool]:
        """Read entries, up to an offset of the index if COUNT alone could give far too much.

        Returns rows, and whether there may be more of them.
        """
        known, end = self._cache.sizes.get(self._topic, self._partition), None
        count = count_for(max_bytes, average, most)
        self._is_fresh = False
        if known is None or known.may_exceed(count, max_bytes):
            if index is None:
                index = await self._submit_index(offset, max_bytes)
            end = range_end(index, max_bytes)
        submit, stream, start = self._store.submit_command, self._key.stream, self._id(offset)
        last = "+" if end is None else self._id(end)
        rows: list[Any] = await submit("XRANGE", stream, start, last, "COUNT", count)
        if not rows and end is not None:  # another client has trimmed the stream
            count = 1
            rows = await submit("XRANGE", stream, start, "+", "COUNT", count)
        return rows, end is not None or len(rows) == count

    async def _fill(self) -> None:
        """Ask for more, if the entries were far smaller than expected."""
        result, request = self._result, self._request
        for _ in range(FILLS):
            had, at = len(result.entries), result.entries[-1].last + 1
            most = self._max_entries - had
            if 2 * result.size >= request.max_bytes or most <= 0:
                return
            rows, more = await self._query_range(
                at, request.max_bytes - result.size, result.size / had, most
            )
            full = self._take(rows, at)
            if full or not more or len(result.entries) == had:
                return

    def _submit_index(self, offset: int, max_bytes: int) -> "asyncio.Future[Any]":
        """Read the rows of the sparse index above an offset."""
        return self._store.submit_command(
            *("ZRANGEBYSCORE", self._key.index, f"({offset}", "+inf"),
            *("LIMIT", 0, index_rows_for(max_bytes)),
        )

    async def _read_state(self) -> None:
        self._use_state(await self._store.submit_command("HMGET", self._key.log, *STATE))

    async def _read_recent_state(self) -> None:
        """Use a state of the last milliseconds: records in segments hardly change."""
        states, where = self._states, (self._topic, self._partition)
        if states is None:
            await self._read_state()
            return
        recent = states.fresh(*where)
        self._use_state(await states.read(*where) if recent is None else recent.fields)

    def _use_state(self, state: Sequence[bytes | None]) -> None:
        """Begin the result with the log's state, and learn its sizes."""
        if state[0] is None:
            self._result = ReadResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return
        if state[0].decode() != self._topic.id:
            self._result = ReadResult(ErrorCode.UNKNOWN_TOPIC_ID)
            return
        end, start, epoch, size, count, largest = (int(text or 0) for text in state[1:7])
        stable = None if state[7] is None else int(state[7])
        average = size / max(count, 1)
        self._cache.sizes.learn(self._topic, self._partition, average, largest, end, stable)
        self._known_end, self._cleaned = end, state[8]
        self._local_start = int(state[9] or 0)
        if self._local_start:
            self._cache.sizes.learn_local_start(self._topic, self._partition, self._local_start)
        self._result = ReadResult(
            ErrorCode.NONE, start, end, epoch, [], stable=stable, appended=size
        )

    async def _read_cleaned(self) -> bytes | None:
        """Return up to which offset the log is cleaned by now."""
        log_key = self._key.log
        cleaned: bytes | None = await self._store.submit_command("HGET", log_key, CLEANED)
        return cleaned

    async def _read_bounds(self) -> ReadResult:
        """Read the exact bounds for an offset that is outside the log's state."""
        topic, offset = self._topic, self._offset
        bounds = await self._store.run(
            log.list_offsets(self._keys, topic.name, self._partition, topic_id=topic.id)
        )
        if bounds.error:
            return ReadResult(ErrorCode(bounds.error))
        lost = bounds.next < offset <= bounds.coming and self._is_promoted(self._key.stream)
        if not lost and not bounds.start <= offset <= bounds.next:
            return ReadResult(ErrorCode.OFFSET_OUT_OF_RANGE)  # as Kafka's, without bounds
        end, stable = (offset, offset) if lost else (bounds.next, bounds.stable)
        return ReadResult(ErrorCode.NONE, bounds.start, end, bounds.epoch, [], 0, stable)

    # Entries.

    @property
    def _has_times(self) -> bool:
        return self._topic.policy.offset_mode == "time"

    def _id(self, offset: int) -> str:
        policy = self._topic.policy
        return entry_id(policy.offset_mode, policy.offset_bits, max(offset, 0))

    def _take(self, rows: Sequence[Any], offset: int) -> bool:
        """Add the entries of an XRANGE reply that fit. Returns whether one did not."""
        result, request, layout = self._result, self._request, self._layout
        policy, parse = self._topic.policy, layout.parse_entry
        is_time, bits = self._has_times, policy.offset_bits
        has_tail = layout.has_tail and not request.raw
        had, now_ms, full = len(result.entries), int(time() * 1000), False
        for raw_id, fields in rows:
            milliseconds, sequence = split_id(raw_id)
            if is_time:
                last = (milliseconds << bits) | sequence
                has_offset = sequence < 1 << bits
            else:
                last, has_offset = sequence, milliseconds == DENSE_MS
                milliseconds = now_ms
            entry = parse(last, milliseconds, fields, request.decompress) if has_offset else None
            if entry is None:
                self._cache.skip(self._topic, self._partition, raw_id)
                continue
            if has_tail and layout.last_record(entry) < offset:
                continue
            if result.entries and (
                result.size + entry.size > request.max_bytes
                or last - result.entries[0].first > records.MAX_SPAN
            ):
                full = True
                break
            result.entries.append(entry)
            result.size += entry.size
        if len(result.entries) > had and result.entries[had].first > offset:
            self._has_gap |= not self._is_fresh
        if result.entries:
            result.end = max(result.end, result.entries[-1].last + 1)
            self._cache.learn_entries(
                *(self._topic, self._partition, offset, result.entries[had:], result.end)
            )
        return full

    def _offset_after(self, rows: Sequence[Any]) -> int:
        """Return the offset after rows without records; -1 if no record can follow."""
        policy = self._topic.policy
        milliseconds, sequence = split_id(rows[-1][0])
        after = sequence + 1 if milliseconds == DENSE_MS else -1
        if policy.offset_mode == "time":
            bits = policy.offset_bits
            after = (milliseconds << bits) + min(sequence + 1, 1 << bits)
        return after if after <= self._result.end or not self._layout.holds_batches else -1
