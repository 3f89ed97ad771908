"""Acquire records of one partition: read the log, then let share.acquire decide.

Rules
- Read the log from where the group's next records are; share.acquire decides which of the records
  read the member gets. The script knows the group's state; it does not read the log.
- The position to read from is cached. A wrong one costs a call and does no harm: the script takes
  only what is available, and answers with the right position.

Read the log for an acquire: as many bytes as the member may take, and some for the next acquire.

What is read ahead is in the batch cache then, so that the next acquire of the group reads nothing.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial

from korvet.base.errors import ErrorCode
from korvet.fetch.partition_reader import ResponseMemory
from korvet.fetch.record_format import encode_records
from korvet.groups.lag import find_offset
from korvet.log.layouts import layout_of
from korvet.log.opening import in_thread
from korvet.log.read_result import ReadRequest, ReadResult
from korvet.log.reader import LogReader
from korvet.scripts.call import Signal
from korvet.scripts.calls.partition import ShareAcquireReply
from korvet.share.acquire_values import (
    Acquired,
    AcquireServices,
    Available,
    Budget,
    Range,
    ReadPosition,
    ShareFetchParams,
    cut_runs,
    drop_above,
    entries_with,
    keyed_records,
    ranges_of,
)
from korvet.topics.table import Topic
from korvet.wire.records import BadBatch

MIN_READ_BYTES, FIRST_READ_BYTES, MAX_READ_BYTES = 1 << 12, 1 << 18, 8 << 20
MORE, AHEAD = 1.25, 8
"""Bytes read, as a multiple of the expected size of the records that the member may take."""


@dataclass(eq=False, repr=False)
class LogReads:
    """Reads of one partition's log from a share group's position on."""

    reader: LogReader
    memory: ResponseMemory
    topic: Topic
    partition: int
    position: ReadPosition
    _: KW_ONLY
    committed: bool

    def __post_init__(self) -> None:
        self._layout = layout_of(self.topic)

    async def at_position(self, budget: Budget) -> ReadResult:
        """Read from the position on, or take batches of the cache. Raises StoreError."""
        position = self.position
        max_bytes = min(max(budget.bytes, 0), MAX_READ_BYTES)
        wanted = int(position.record_bytes * budget.records)
        cached = self._cached(min(max_bytes, wanted))
        if cached is not None:
            return cached
        result = await self.at(position.next, min(max_bytes, self._bytes_for(wanted)))
        if result.entries:
            position.record_bytes = result.size / self._layout.count_records(result.entries)
        return result

    async def at(self, offset: int, max_bytes: int) -> ReadResult:
        """Read from an offset on, and count the bytes as held meanwhile. Raises StoreError."""
        request = ReadRequest(
            self.topic,
            self.partition,
            offset,
            max_bytes,
            committed=self.committed,
            decompress=True,
        )
        self.memory.bytes += max_bytes
        try:
            return await self.reader.read(request)
        finally:
            self.memory.bytes -= max_bytes

    def _cached(self, wanted: int) -> ReadResult | None:
        """Return batches of the cache, if they are as many bytes as wanted.

        The log's state is not read: the script checks topic, log start and end. A cleaning changes
        batches, and a committed read needs the last stable offset.
        """
        is_plain = self._layout.holds_batches and not self.topic.policy.compact
        if wanted <= 0 or not is_plain or self.committed:
            return None
        entries = self.reader.cache.batches_from(
            self.topic, self.partition, self.position.next, int(wanted * MORE)
        )
        size = sum(entry.size for entry in entries)
        if size < wanted:
            return None
        # Markers may be among them.
        return ReadResult(ErrorCode.NONE, entries=entries, size=size, stable=-1)

    def _bytes_for(self, wanted: int) -> int:
        """Return how many bytes to read: some ahead, if they are cached for the next acquire."""
        if not wanted:
            return FIRST_READ_BYTES
        # With an order each record read costs a digest and two arguments.
        if not self._layout.holds_batches or self.position.ordered:
            return max(MIN_READ_BYTES, int(wanted * MORE))
        return max(MIN_READ_BYTES, AHEAD * wanted)


AS_FETCH = 17
"""The version of Fetch whose record format ShareFetch has."""
TRIES = 8
"""Reads of one acquire: other members may have taken what the first ones read."""


@dataclass(eq=False, repr=False)
class PartitionAcquire:
    """An acquire in progress."""

    services: AcquireServices
    params: ShareFetchParams
    topic: Topic
    partition: int
    position: ReadPosition
    budget: Budget

    def __post_init__(self) -> None:
        self._layout = layout_of(self.topic)
        self._reads = LogReads(
            self.services.log_reader,
            self.services.memory,
            self.topic,
            self.partition,
            self.position,
            committed=self.params.config.read_committed,
        )
        self.acquired = Acquired()
        """The result."""

    async def run(self) -> Acquired:
        """Acquire records within the budget. Raises StoreError."""
        acquired, position, empty_at = self.acquired, self.position, -1
        for _ in range(TRIES):
            is_unknown = position.next < 0
            if is_unknown and not self._set_position(await self._find_position()):
                return acquired
            # The log may have ended there already when the position was cached.
            if position.next == empty_at:
                return acquired
            result = await self._reads.at_position(self.budget)
            if result.error and result.error != ErrorCode.OFFSET_OUT_OF_RANGE:
                acquired.error = result.error
                return acquired
            if result.entries:
                if await self._acquire_from(result):
                    return acquired
            elif is_unknown and not result.error:
                return acquired
            else:
                # Records may be available below a cached position.
                empty_at, position.next = -1 if result.error else position.next, -1
        return acquired

    async def measure(self, available: Available, max_bytes: int) -> None:
        """Count the log's bytes from the group's next records on, at most `max_bytes`.

        As in Kafka, records that members have acquired count too if they are behind the first
        available one. Only what is new since the last call is read. Raises StoreError.
        """
        position = self.position
        # Another broker's members may have moved it; the reply says when to count again.
        if not self._set_position(await self._find_position()):
            available.bytes = max_bytes
            return
        if available.first != position.next:
            available.first = available.next = position.next
            available.bytes = 0
        while available.bytes < max_bytes:
            left = min(max_bytes - available.bytes, MAX_READ_BYTES)
            result = await self._reads.at(available.next, left)
            if result.error:
                available.bytes = max_bytes
            if not result.entries:
                return
            available.bytes += result.size
            available.next = result.entries[-1].last + 1

    def _set_position(self, reply: ShareAcquireReply) -> bool:
        """Use the position that the script answered; return False after an error."""
        if reply.error:
            self.position.next = -1
            self.acquired.error = ErrorCode(reply.error)
            return False
        position = self.position
        position.next, position.room, position.ordered = reply.next, reply.room, bool(reply.ordered)
        self.acquired.wait_ms = reply.wait_ms
        return True

    async def _find_position(self) -> ShareAcquireReply:
        """Return where to read from, by the script; give the group a state if it has none."""
        reply = await self._call(())
        if reply.error != Signal.START_FIRST:
            return reply
        services = self.services
        position = self.params.config.start_position()
        start = await find_offset(
            services.store, services.log_reader, self.topic, self.partition, position
        )
        if start < 0:
            return ShareAcquireReply(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, 0, -1, 0, 0, [])
        return await self._call((), start=start)

    async def _acquire_from(self, result: ReadResult) -> bool:
        """Acquire records of a read; return whether the acquire is complete."""
        budget = self.budget
        if budget.is_used and result.entries[0].size > budget.bytes:
            budget.bytes = 0
        if budget.records <= 0 or (budget.is_used and budget.bytes <= 0):
            self.acquired.skipped = True
            return True
        drop_above(result, budget.bytes)
        position = self.position
        first, ordered = position.next, position.ordered
        reply = await self._decide(result)
        if not self._set_position(reply):
            return True
        if reply.runs:
            self._respond(result, reply, first)
        return bool(reply.runs) or (reply.next == first and position.ordered == ordered)

    async def _decide(self, result: ReadResult) -> ShareAcquireReply:
        """Let the script decide which of the records read the member gets."""
        position, max_records = self.position, self.budget.records
        together = max_records if position.room <= 0 else min(max_records, position.room)
        ranges: Sequence[Range] | Sequence[tuple[int, str]]
        read_to = result.entries[-1].last
        # Other partitions of the request get none meanwhile.
        self.budget.records = 0
        taken = 0
        try:
            if position.ordered:
                read = partial(keyed_records, self.topic, result, position.next)
                ranges = await in_thread(read) if self._layout.holds_batches else read()
            else:
                ranges = ranges_of(self.topic, result, position.next, together)
            exact = self.params.exact or not self._layout.holds_batches
            reply = await self._call(
                ranges,
                read=(position.next, read_to),
                max_records=max_records,
                exact=exact,
                has_keys=position.ordered,
            )
            flat = reply.runs
            taken = sum(last - first + 1 for first, last in zip(flat[::3], flat[1::3], strict=True))
            return reply
        finally:
            self.budget.records = max_records - taken

    async def _call(
        self,
        ranges: Sequence[Range] | Sequence[tuple[int, str]],
        *,
        start: int = -1,
        read: Range = (-1, -1),
        max_records: int = 0,
        exact: bool = False,
        has_keys: bool = False,
    ) -> ShareAcquireReply:
        params, config, services = self.params, self.params.config, self.services
        call = self.topic.partition(self.partition).share_acquire(
            ranges,
            group=params.group,
            member=params.member,
            start=start,
            read_from=read[0],
            read_to=read[1],
            most=max_records,
            exact=int(exact),
            lock_ms=config.record_lock_duration_ms,
            delivery_limit=config.delivery_count_limit,
            max_locks=config.partition_max_record_locks,
            dead_letters=int(config.has_dead_letters),
            ordered=int(config.ordered_by_key),
            has_keys=int(has_keys),
        )
        reply = await services.store.run(call)
        services.notice(params.group, config, self.topic, self.partition, reply.dead_letters)
        return reply

    def _respond(self, result: ReadResult, reply: ShareAcquireReply, offset: int) -> None:
        """Add the acquired runs with the entries that hold them."""
        acquired, budget = self.acquired, self.budget
        flat = iter(reply.runs)
        runs = list(zip(flat, flat, flat, strict=True))
        result.entries = entries_with(result.entries, runs)
        try:
            parts = encode_records(self.topic, result, offset, budget.bytes, AS_FETCH)
        except BadBatch as bad:
            is_invalid = bad.error == ErrorCode.INVALID_RECORD
            acquired.error = ErrorCode.CORRUPT_MESSAGE if is_invalid else bad.error
            return
        if not self.params.exact:
            runs = cut_runs(runs, result.entries, self.params.batch_size)
        acquired.runs, acquired.records = runs, parts
        budget.bytes -= sum(map(len, parts))
        budget.is_used = True
