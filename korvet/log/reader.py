"""Reading a partition from an offset: two plain commands, bounded in bytes, and what they mean.

Rules
- One HMGET of the log's state and one XRANGE, in one burst. XRANGE counts entries, not bytes: its
  COUNT comes from how large they are expected to be, and where the largest could make that far too
  much, its end comes from the sparse index, which knows bytes (`korvet/log/size_estimates.py`).
- What is compressed at rest counts as it is when it is sent on, in the state's bytes too.
- Where nothing is known of a partition's sizes, or no longer, the state and the index are asked for
  first, and then the entries; at the end of the log, with the state, a few of them.
- Where they were far smaller than expected, more are asked for, some times at most.
- A committed read ends at the last stable offset, and names the aborted transactions that reach
  into it. The state is read first: what has ended by then is in the index of aborted ones for sure.
  Who stands at that offset has nothing else read as long as it does not move.
- What lies below the stored start or above the end is OFFSET_OUT_OF_RANGE. Anything else, gaps
  included, gives the next records there are. In time mode, on a server that has taken over from
  another, the end is now: who stands between it and the last record has read what the failover
  lost, and goes on with what comes.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, cast

from korvet.errors import ErrorCode
from korvet.keys import Keys, Partition
from korvet.log.batch_cache import BatchCache
from korvet.log.entry import Entry, batch_of
from korvet.log.entry_id import DENSE_MS, entry_id, split_id
from korvet.log.read_result import ReadResult, Store, commit_only
from korvet.log.size_estimates import MAX_ENTRIES, SizeEstimates, count_for, end_of, steps_for
from korvet.scripts import log
from korvet.scripts.call import Call
from korvet.scripts.log import AppendReply
from korvet.store.async_store import let_go
from korvet.topics.table import Topic
from korvet.wire import record_entries, records

STATE = (
    "topic_id",
    "next",
    "start",
    "epoch",
    "bytes",
    "entries",
    "largest_append",
    "stable",
    "cleaned",
)
FILLS = 3
"""So often one read asks for more where much less came than was asked for."""

logger = logging.getLogger("korvet.log.reader")


class LogReader:
    """Reads partitions of one store. Keeps each partition's shape between reads, and of batches
    `cache_bytes`, as long as `turns` says the same: then no other server can have taken over. Where
    the server `is_promoted`, a log may have ended later than it does."""

    def __init__(
        self,
        store: Store,
        keys: Keys,
        cache_bytes: int = 0,
        most: int = MAX_ENTRIES,
        turns: Callable[[], int] = lambda: 0,
        is_promoted: Callable[[str], bool] = lambda key: False,
    ) -> None:
        self._store = store
        self._turns = turns
        self._is_promoted = is_promoted
        self._turn = 0
        self._most = most
        self._cache: BatchCache[Entry] = BatchCache(cache_bytes)
        self._keys = keys
        self._shapes = SizeEstimates()
        self._passed_over: set[tuple[str, int]] = set()
        self.passed_over = 0

    async def read(
        self,
        topic: Topic,
        partition: int,
        offset: int,
        max_bytes: int,
        *,
        raw: bool = False,
        committed: bool = False,
        sent: bool = False,
    ) -> ReadResult:
        """The entries from `offset` on, about `max_bytes` of them, at least one.

        In bytes mode an offset may lie behind the last record of its entry; whoever wants bytes,
        not records, says `raw` and gets that entry too. `committed` leaves out what lies at or
        behind the last stable offset. Who sends the records on says `sent`: values come, and count,
        as they are then, not as they are compressed at rest.
        """
        sent = sent and not topic.is_batch
        k = self._keys.partition(topic.name, partition)
        while True:
            kept, state, rows, more = await self._look(
                topic, partition, k, offset, max_bytes, committed
            )
            found = self._state(topic, partition, state)
            if found.error:
                return found
            known_end = found.end
            if kept:
                found.entries, found.size = kept, sum(entry.size for entry in kept)
                found.end = max(found.end, kept[-1].last + 1)
                limit = min(known_end, found.last_stable) if committed else known_end
                await self._go_on(found, topic, partition, k, max_bytes, limit)
                break
            full = self._take(found, topic, partition, offset, max_bytes, rows, raw, sent)
            self._keep(topic, partition, offset, found.entries)
            if found.entries and more and not full:
                await self._fill(found, topic, partition, k, max_bytes, raw, sent)
            if found.entries or not rows or (after := self._behind(topic, found, rows)) <= offset:
                break
            offset = after
        if committed:
            await commit_only(self._store, found, topic, k, offset, known_end)
            if topic.policy.compact and await self._compacted_since(k, state):
                return await self.read(
                    topic, partition, offset, max_bytes, committed=committed, sent=sent
                )
        if offset < found.start or (not found.entries and offset > found.end):
            return await self._outside(topic, partition, offset)
        return found

    async def _go_on(
        self,
        found: ReadResult,
        topic: Topic,
        partition: int,
        k: Partition,
        max_bytes: int,
        limit: int,
    ) -> None:
        """Up to `limit`, the slice goes on with what was never kept here: markers, and what other
        brokers appended."""
        at, room = found.entries[-1].last + 1, max_bytes - found.size
        average = found.size / len(found.entries)
        if at >= limit or room < average:
            return
        came = self._cache.run(topic.id, partition, at, room)  # while the state was asked for
        if came:
            if came[0].size <= room:
                found.entries += came
                found.size += sum(entry.size for entry in came)
                found.end = max(found.end, came[-1].last + 1)
            return
        had = len(found.entries)
        rows, _ = await self._rows(topic, partition, k, at, room, average, self._most)
        self._take(found, topic, partition, at, max_bytes, rows, raw=False, sent=False)
        self._keep(topic, partition, at, found.entries[had:])

    async def _fill(
        self,
        found: ReadResult,
        topic: Topic,
        partition: int,
        k: Partition,
        max_bytes: int,
        raw: bool,
        sent: bool,
    ) -> None:
        """The slice has about what was asked for, or most of it, though less came at first."""
        for _ in range(FILLS):
            had, at = len(found.entries), found.entries[-1].last + 1
            if 2 * found.size >= max_bytes or had >= self._most:
                return
            rows, more = await self._rows(
                *(topic, partition, k, at, max_bytes - found.size),
                *(found.size / had, self._most - had),
            )
            full = self._take(found, topic, partition, at, max_bytes, rows, raw, sent)
            self._keep(topic, partition, at, found.entries[had:])
            if full or not more or len(found.entries) == had:
                return

    async def _compacted_since(self, k: Partition, state: Sequence[bytes | None]) -> bool:
        """Whether a compaction came between: then the index of what was aborted is too new."""
        cleaned: bytes | None = await self._store.submit_command("HGET", k.log, STATE[8])
        return cleaned != state[8]

    async def _ask(
        self, topic: Topic, partition: int, k: Partition, offset: int, max_bytes: int
    ) -> tuple[list[Any], list[Any], bool]:
        """The log's state, entries, and whether there may be more of these."""
        submit = self._store.submit_command
        shape, count = self._shapes.of(topic, partition), 0
        if shape is not None:
            average = self._shapes.average(topic, partition, offset)
            count = count_for(max_bytes, average, self._most)
            if shape.is_old or shape.skewed(count, max_bytes):
                count = min(count, shape.newest(max_bytes)) if offset >= shape.end else 0
        asked = submit("HMGET", k.log, *STATE)
        if count:
            reading = submit("XRANGE", k.stream, self._id(topic, offset), "+", "COUNT", count)
        else:
            reading = self._steps(k, offset, max_bytes)
        try:
            state, came = await asked, await reading
        except BaseException:
            let_go(reading)
            raise
        if count:
            return state, came, len(came) == count
        if self._state(topic, partition, state).error:
            return state, [], False
        average = self._shapes.average(topic, partition, offset)
        return state, *await self._rows(
            topic, partition, k, offset, max_bytes, average, self._most, came
        )

    def _steps(self, k: Partition, offset: int, max_bytes: int) -> "asyncio.Future[Any]":
        """The steps of the index behind an offset."""
        return self._store.submit_command(
            *("ZRANGEBYSCORE", k.index, f"({offset}", "+inf", "LIMIT", 0, steps_for(max_bytes))
        )

    async def _look(
        self,
        topic: Topic,
        partition: int,
        k: Partition,
        offset: int,
        max_bytes: int,
        committed: bool,
    ) -> tuple[list[Entry], list[Any], list[Any], bool]:
        """Entries that are kept here, the log's state, and what `_ask` found where none are."""
        if committed and self._shapes.is_open(topic, partition, offset):
            state = await self._store.submit_command("HMGET", k.log, *STATE)
            self._state(topic, partition, state)
            if self._shapes.is_open(topic, partition, offset):
                return [], state, [], False
        if topic.is_batch and not topic.policy.compact:  # what was compacted must not come back
            kept = self._kept(topic, partition, offset, max_bytes)
            if kept:
                # Whether they may still be read is the state's to say; their bytes are here.
                state = await self._store.submit_command("HMGET", k.log, *STATE)
                if self._turns() == self._turn:
                    return kept, state, [], False
        return [], *await self._ask(topic, partition, k, offset, max_bytes)

    def _kept(self, topic: Topic, partition: int, offset: int, max_bytes: int) -> list[Entry]:
        """The batches from `offset` on that need not be read."""
        if self._turn != (turn := self._turns()):
            self._turn = turn
            self._cache.clear()
        return self._cache.run(topic.id, partition, offset, max_bytes)

    def _keep(
        self, topic: Topic, partition: int, offset: int, entries_read: Sequence[Entry]
    ) -> None:
        """It is known how large what one XRANGE found was; batches are in the cache, each under
        the end of the one before."""
        if entries_read:
            average = sum(entry.size for entry in entries_read) / len(entries_read)
            self._shapes.met(topic, partition, entries_read[-1].last + 1, average)
        if self._cache.capacity and topic.is_batch:
            for entry in entries_read:
                self._cache.put(topic.id, partition, offset, entry)
                offset = entry.last + 1

    def appended(
        self, topic: Topic, partition: int, previous: int, base: int, call: Call[AppendReply]
    ) -> None:
        """A batch was appended behind `previous`: who reads this partition here will want it."""
        if not self._cache.capacity or self._shapes.of(topic, partition) is None:
            return
        batch = log.whole_batch(call)
        if batch is None:
            return
        if isinstance(batch, memoryview) and len(batch.obj) > 2 * len(batch):  # type: ignore[arg-type]
            batch = bytes(batch)  # a slice would keep the whole frame
        count, newest = log.count_of(call), log.newest_of(call)
        kept = [b"batch", cast(bytes, batch), b"count", b"%d" % count]
        kept += [b"max.timestamp", b"%d" % newest]
        entry = Entry(base, base + count - 1, kept, 0, sum(map(len, kept)))
        self._cache.put(topic.id, partition, previous, entry)

    async def _rows(
        self,
        topic: Topic,
        partition: int,
        k: Partition,
        offset: int,
        max_bytes: int,
        average: float,
        most: int,
        steps: Sequence[bytes] | None = None,
    ) -> tuple[list[Any], bool]:
        """An XRANGE that ends where the index says that enough bytes lie, where that may be before
        enough entries have come; and whether there may be more of them."""
        shape, end = self._shapes.of(topic, partition), None
        count = count_for(max_bytes, average, most)
        if shape is None or shape.skewed(count, max_bytes):
            if steps is None:
                steps = await self._steps(k, offset, max_bytes)
            end = end_of(steps, max_bytes)
        start, submit = self._id(topic, offset), self._store.submit_command
        last = "+" if end is None else self._id(topic, end)
        rows: list[Any] = await submit("XRANGE", k.stream, start, last, "COUNT", count)
        if not rows and end is not None:  # somebody trimmed the stream natively
            count = 1
            rows = await submit("XRANGE", k.stream, start, "+", "COUNT", count)
        return rows, end is not None or len(rows) == count

    def _id(self, topic: Topic, offset: int) -> str:
        return entry_id(topic.policy.offset_mode, topic.policy.offset_bits, max(offset, 0))

    def _state(self, topic: Topic, partition: int, state: Sequence[bytes | None]) -> ReadResult:
        if state[0] is None:
            return ReadResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if state[0].decode() != topic.id:
            return ReadResult(ErrorCode.UNKNOWN_TOPIC_ID)
        end, start, epoch, size, count, largest = (int(text or 0) for text in state[1:7])
        stable = None if state[7] is None else int(state[7])
        self._shapes.learn(topic, partition, size / max(count, 1), largest, end, stable)
        return ReadResult(ErrorCode.NONE, start, end, epoch, [], stable=stable, appended=size)

    def _take(
        self,
        found: ReadResult,
        topic: Topic,
        partition: int,
        offset: int,
        max_bytes: int,
        rows: Sequence[Any],
        raw: bool,
        sent: bool,
    ) -> bool:
        """The entries of an XRANGE reply go into the slice, up to the bytes asked for. Whether one
        did not fit."""
        mode, bits = topic.policy.offset_mode, topic.policy.offset_bits
        met_ms, full = int(time.time() * 1000), False
        for raw_id, fields in rows:
            milliseconds, sequence = split_id(raw_id)
            if mode == "time":
                last = (milliseconds << bits) | sequence
                own = sequence < 1 << bits
            else:
                last, own = sequence, milliseconds == DENSE_MS
                milliseconds = met_ms
            if not own:
                self._pass_over(topic, partition, raw_id)
                continue
            first = last
            if sent:
                fields = record_entries.unpacked(fields)
            size = sum(map(len, fields))
            if topic.is_batch:
                batch, count = batch_of(fields)
                if batch is None or (len(batch) < records.HEADER_SIZE and not topic.is_bytes):
                    self._pass_over(topic, partition, raw_id)
                    continue
                first = last - count + 1
            entry = Entry(first, last, fields, milliseconds, size)
            if topic.is_bytes and not raw and entry.last_record < offset:
                continue
            if found.entries and (
                found.size + size > max_bytes or last - found.entries[0].first > records.MAX_SPAN
            ):
                full = True
                break
            found.entries.append(entry)
            found.size += size
        if found.entries:
            found.end = max(found.end, found.entries[-1].last + 1)
        return full

    def _behind(self, topic: Topic, found: ReadResult, rows: Sequence[Any]) -> int:
        """Where to read on behind rows of which none is to be had, -1 where no more can come."""
        milliseconds, sequence = split_id(rows[-1][0])
        after = sequence + 1 if milliseconds == DENSE_MS else -1
        if topic.policy.offset_mode == "time":
            bits = topic.policy.offset_bits
            after = (milliseconds << bits) + min(sequence + 1, 1 << bits)
        return after if after <= found.end or not topic.is_batch else -1

    def _pass_over(self, topic: Topic, partition: int, raw_id: bytes) -> None:
        self.passed_over += 1
        if (topic.id, partition) not in self._passed_over:
            self._passed_over.add((topic.id, partition))
            logger.warning(
                "topic=%s partition=%d entry=%s has no offset of its own and is passed over, "
                "as are others like it",
                topic.name,
                partition,
                raw_id.decode(),
            )

    async def _outside(self, topic: Topic, partition: int, offset: int) -> ReadResult:
        """The offset is not in the log as the counters have it: ask for the true bounds."""
        bounds = await self._store.run(
            log.list_offsets(self._keys, topic.name, partition, topic_id=topic.id)
        )
        if bounds.error:
            return ReadResult(ErrorCode(bounds.error))
        lost = bounds.next < offset <= bounds.coming and self._is_promoted(
            self._keys.partition(topic.name, partition).stream
        )
        if not lost and not bounds.start <= offset <= bounds.next:
            # Without bounds: Kafka's answer has none.
            return ReadResult(ErrorCode.OFFSET_OUT_OF_RANGE)
        if lost:
            return ReadResult(ErrorCode.NONE, bounds.start, offset, bounds.epoch, [], 0, offset)
        return ReadResult(
            ErrorCode.NONE, bounds.start, bounds.next, bounds.epoch, [], 0, bounds.stable
        )
