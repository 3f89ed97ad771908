"""Log cleaner: compact a log by key, so that each key keeps its newest record at its offset.

    clean_begin    find the dirty range and write the pass's token into the log
      |            (here: read the dirty range and build the map of key -> newest offset)
      v
    clean_copy     copy ranges of entries that stay whole into the compacted copy
      |
    clean_rewrite  add an entry that keeps only some of its records (alternates with clean_copy)
      v
    clean_commit   copy the entries from `limit` on, then replace the log with the copy, atomically;
                   repeated while the reply says `more`

Rules
- Python reads keys and decides which records stay. Scripts copy entries, a few at a time, into the
  compacted copy (key `compacted`).
- Only entries below the last stable offset are cleaned. Records of aborted transactions are
  removed, and so are transaction markers below the limit: no reader below it needs them.
- A tombstone (a record without a value) is removed once it is below the delete horizon,
  delete.retention.ms after the pass that first cleaned it.
- The last entry below the limit always stays, so that a reader can reach the limit.
- A foreign entry may have more fields than a script can add: then a plain XADD adds it. The next
  script compares the number of entries: an XADD into another pass's copy ends that pass.
- A pass writes its token into the log, and the scripts refuse every other pass from then on. A pass
  that dies changes nothing: the next one starts over. So does a pass whose copy lacks entries: a
  failover may lose writes that Redis has acknowledged.
- An obsolete copy is deleted at once if Redis refuses to grow it, otherwise by the next pass.
- After each call the cleaner sleeps at least THROTTLE_FACTOR times as long as Redis took for it. If
  writers append faster than that, LOW_THROTTLE_FACTOR applies to clean_commit after THROTTLED_CALLS
  calls.
- The memory for one key is bounded, and so is the number of keys.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

from korvet.log.compacted_copy import (
    THROTTLE_FACTOR,
    UNREADABLE,
    BusyTimer,
    CleanedIndex,
    CompactedCopy,
    Outcome,
    Superseded,
    entries_with_records,
    key_mark,
    rewrite_batch,
)
from korvet.log.entry import Entry, OffsetMap, split_id
from korvet.log.opening import in_thread
from korvet.log.read_result import ReadRequest, ReadResult
from korvet.log.reader import LogReader
from korvet.scripts.calls.partition import CleanBeginReply
from korvet.store.calls import ReadCalls
from korvet.store.errors import StoreRefused
from korvet.topics.table import Topic
from korvet.wire.records import Record

READ_BYTES = 1 << 18
READ_ENTRIES = 500
TAIL_ENTRIES = 500
MAX_KEYS = 250_000
"""Keys per pass, checked after each read. Later offsets are left for the next pass."""
LOW_THROTTLE_FACTOR = 1.0
THROTTLED_CALLS = 200
"""Calls of clean_commit with THROTTLE_FACTOR, after which LOW_THROTTLE_FACTOR applies."""


class LogCleaner:
    """Cleaning pass over one partition."""

    def __init__(
        self,
        store: ReadCalls,
        topic: Topic,
        partition: int,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        store = BusyTimer(store)
        self._topic, self._partition = topic, partition
        self._reader = LogReader(store, max_entries=READ_ENTRIES)
        self._copy = CompactedCopy(store, topic, partition, sleep)
        self._store = store
        self._newest: dict[bytes, int] = {}
        self._mapped_to = 0
        self._youngest = -1
        self._run = CleanedIndex()

    async def run(self) -> Outcome | None:
        """Compact the log; None if it is not dirty or another pass took over."""
        policy = self._topic.policy
        try:
            plan = await self._copy.call(
                self._copy.partition.clean_begin(
                    token=self._copy.token,
                    lag_ms=policy.min_compaction_lag_ms,
                    tombstone_ms=policy.delete_retention_ms,
                    dirty=int(policy.min_cleanable_dirty_ratio * 1000),
                )
            )
            if plan.error or not plan.due:
                return None
            self._youngest = plan.newest
            shifts = await self._store.submit_command("HGET", self._copy.log_key, "shifts")
            self._copy.places = OffsetMap(policy.offset_mode, policy.offset_bits, shifts)
            await self._map_keys(plan)
            outcome = await self._copy_retained(plan)
            await self._commit(plan, outcome)
        except Superseded:
            return None
        except StoreRefused:
            # Redis may be out of memory, and writers need what the copy takes. If the copy is
            # already another pass's, that pass finds it incomplete and ends.
            await self._copy.delete()
            raise
        return outcome

    async def _slices(self, start: int, limit: int) -> AsyncIterator[ReadResult]:
        at = start
        while at < limit:
            found = await self._reader.read(
                ReadRequest(self._topic, self._partition, at, READ_BYTES, committed=True)
            )
            await self._copy.throttle()
            if found.error:
                raise Superseded
            found.entries = [entry for entry in found.entries if entry.last < limit]
            if not found.entries:
                return
            yield found
            at = found.entries[-1].last + 1

    async def _map_keys(self, plan: CleanBeginReply) -> None:
        """Map each key of the dirty range to its newest offset, up to about MAX_KEYS keys.

        Below `cleaned` no key occurs twice, except in the last entry, which a pass never changes.
        """
        async for found in self._slices(await self._entry_before(plan), plan.limit):
            for _, records in await in_thread(partial(entries_with_records, self._topic, found)):
                for offset, _, key, _, _ in records:
                    if key is not None and key is not UNREADABLE:
                        self._newest[key_mark(key)] = offset
            self._mapped_to = found.entries[-1].last + 1
            if len(self._newest) > MAX_KEYS:
                return
        self._mapped_to = plan.limit

    async def _entry_before(self, plan: CleanBeginReply) -> int:
        """Return an offset of the last entry below `cleaned`, or the log start.

        With offset.mode=time there may be a gap in between.
        """
        if plan.cleaned <= plan.start:
            return plan.start
        places = self._copy.places
        at = places.id(plan.cleaned)
        rows = await self._store.submit_command(
            "XREVRANGE", self._copy.log_stream, f"({at}", "-", "COUNT", 1
        )
        found = [places.offset(*split_id(raw)) for raw, _ in rows]
        return max([plan.start, *(each for each in found if each is not None)])

    async def _copy_retained(self, plan: CleanBeginReply) -> Outcome:
        """Put all records that stay below the limit into the compacted copy."""
        outcome = Outcome(plan.limit)
        last: tuple[Entry, list[Record], list[Record]] | None = None
        async for found in self._slices(plan.start, plan.limit):
            rows = await in_thread(partial(entries_with_records, self._topic, found))
            for entry, records in rows:
                if last is not None:
                    await self._copy_entry(*last, outcome)
                last = (entry, records, [row for row in records if self._is_retained(row, plan)])
        if last is not None:
            await self._copy_entry(*last, outcome, last=True)
        await self._copy.flush()
        return outcome

    def _is_retained(self, record: Record, plan: CleanBeginReply) -> bool:
        offset, _, key, value, _ = record
        if offset >= self._mapped_to:
            return True
        if key is UNREADABLE:
            return True
        if key is None or self._newest.get(key_mark(key), offset) != offset:
            return False
        return value is not None or offset >= plan.tombstones

    async def _copy_entry(
        self,
        entry: Entry,
        records: list[Record],
        retained: list[Record],
        outcome: Outcome,
        *,
        last: bool = False,
    ) -> None:
        """Drop the entry, copy it whole, or rewrite it with the records that stay.

        The last entry is always copied whole. Its outdated records are removed by a later pass, but
        are no reason to start one.
        """
        outcome.tombstones |= any(value is None for _, _, _, value, _ in retained)
        if last:
            retained = records
        outcome.removed += len(records) - len(retained)
        if not retained and not last:
            self._copy.skip()
            return
        fields, size = entry.fields, sum(map(len, entry.fields))
        if len(retained) < len(records):
            fields = rewrite_batch(entry, retained)
            size = sum(map(len, fields))
        # A record without a timestamp counts as appended at `plan.newest`, the latest possible
        # time.
        times = [record[1] if record[1] >= 0 else self._youngest for record in retained]
        newest = max(times, default=-1)
        self._run.note(outcome, entry.first, newest, size, len(retained))
        if fields is entry.fields:
            await self._copy.copy_whole(entry, size)
        else:
            await self._copy.rewrite(entry, fields)

    async def _commit(self, plan: CleanBeginReply, outcome: Outcome) -> None:
        start_bytes = max(plan.bytes - outcome.size, 0)
        start_records = max(plan.records - outcome.records, 0)
        rows = self._run.rows(start_bytes, start_records, plan)
        for calls in itertools.count():
            reply = await self._copy.call(
                self._copy.partition.clean_commit(
                    token=self._copy.token,
                    length=self._copy.length,
                    start=plan.start,
                    limit=plan.limit,
                    cleaned=min(self._mapped_to, plan.limit),
                    cleaned_bytes=plan.bytes if self._mapped_to >= plan.limit else start_bytes,
                    start_bytes=start_bytes,
                    start_records=start_records,
                    tombstones=int(outcome.tombstones),
                    tombstone_ms=self._topic.policy.delete_retention_ms,
                    at_most=TAIL_ENTRIES,
                    rows=rows,
                ),
                THROTTLE_FACTOR if calls < THROTTLED_CALLS else LOW_THROTTLE_FACTOR,
            )
            if reply.error:
                raise Superseded
            if not reply.more:
                return
            self._copy.length = reply.length
            if reply.oversized_id:
                at = reply.oversized_id
                found = await self._store.submit_command("XRANGE", self._copy.log_stream, at, at)
                for _, fields in found:
                    await self._copy.add(at, fields)
