"""Copy one partition's records to segments: object first, then the script that adds it.

Rules
- Under the partition's lease, with its fencing number: log.add_segment refuses an earlier holder's.
- Records below the last stable offset only. A segment is written once it has segment.bytes, or its
  first record is older than segment.ms.
- A crash after the write leaves an object that no manifest names: no reader sees it.
"""

import asyncio
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from time import time

from korvet.config.topic_policy import TopicPolicy
from korvet.log.entry import Entry
from korvet.log.layouts import layout_of
from korvet.log.opening import in_thread
from korvet.log.read_cache import ReadCache
from korvet.log.read_result import ReadRequest, ReadResult
from korvet.log.reader import LogReader
from korvet.remote_log.manifest import object_name
from korvet.remote_log.store import SegmentStore
from korvet.scripts.calls.partition import ClaimCopyReply
from korvet.store.async_store import AsyncStore
from korvet.store.errors import StoreError
from korvet.topics.table import Topic
from korvet.wire import compression
from korvet.wire.records import Buffer
from korvet.wire.segment_writer import SegmentWriter
from korvet.wire.segments import CHUNK_BYTES, AbortedRow, SegmentHeader, headers_in

MAX_BATCHES = 512
"""Batches of one read from the cache: other tasks run between two of them."""


class CopyCache(ReadCache):
    """Reads from `shared` without changing its order; caches nothing itself."""

    def __init__(self, shared: ReadCache) -> None:
        super().__init__(0, lambda: 0)
        self._shared = shared

    def is_valid(self) -> bool:
        """Return whether the store still uses the connection that filled the broker's cache."""
        return self._shared.is_valid()

    def batches_from(
        self, topic: Topic, partition: int, offset: int, max_bytes: int
    ) -> list[Entry]:
        """Return the broker's cached batches from the offset on."""
        return self._shared.peek(topic, partition, offset, max_bytes)[:MAX_BATCHES]

    def is_catch_up(self, topic: Topic, partition: int, offset: int, max_bytes: int) -> bool:
        """Return whether `max_bytes` of large batches are expected that are not cached."""
        is_cached = self.has(topic, partition, offset)
        return not is_cached and super().is_catch_up(topic, partition, offset, max_bytes)

    def has(self, topic: Topic, partition: int, offset: int) -> bool:
        """Return whether the broker has cached the batch that a read from the offset finds."""
        return self._shared.has(topic, partition, offset)


ID_DIGITS = 12
READ_BYTES = 1 << 20
CACHED_BYTES = 4 << 20
"""Bytes of a read from the broker's cache: Redis is asked for the log's state only."""
KEPT_BYTES = 16 * 1024
"""Bytes from which on a stored batch is written from where it is; smaller ones are joined."""
LONGEST_S = 20.0
"""Seconds of reading after which a segment is written as it is."""


@dataclass(eq=False, repr=False)
class Collector:
    """Reads one partition, without the segments that it has."""

    store: AsyncStore
    topic: Topic
    partition: int
    cache: CopyCache | None = None

    def __post_init__(self) -> None:
        self._reader = LogReader(self.store)
        if self.cache is not None:
            self._reader.cache = self.cache
        self._reader.use_ranges(self.store, ahead=False)

    async def collect(
        self, first: int, max_bytes: int, end: int | None = None, buffer: bytearray | None = None
    ) -> SegmentWriter:
        """Return the records from `first` on, below `end`, as a segment of about `max_bytes`."""
        writer, offset, began = SegmentWriter(first, buffer), first, time()
        while writer.size < max_bytes and time() - began < LONGEST_S:
            is_cached = self.cache is not None and self.cache.has(
                self.topic, self.partition, offset
            )
            room = CACHED_BYTES if is_cached else READ_BYTES
            room = min(room, max(max_bytes - writer.size, 1))
            result = await self.read(offset, room, batches=end is None)
            if result.batches:
                for batch in result.batches:
                    writer.add(batch)
                offset = result.next_offset
                continue
            entries = [each for each in result.entries if end is None or each.last < end]
            if result.error or not entries:
                break
            self._add(writer, entries, result)
            offset = entries[-1].last + 1
        return writer

    async def read(self, offset: int, max_bytes: int, *, batches: bool = False) -> ReadResult:
        """Return the committed entries from the offset on, or `batches` if there are large ones."""
        return await self._reader.read(
            ReadRequest(
                self.topic,
                self.partition,
                offset,
                max_bytes,
                committed=True,
                batches=batches,
                decompress=True,
            )
        )

    def _add(self, writer: SegmentWriter, entries: Sequence[Entry], result: ReadResult) -> None:
        """Add stored batches as they are if they are large, others in runs of about a chunk."""
        holds_batches = layout_of(self.topic).holds_batches
        run: list[Entry] = []
        size = 0
        for entry in entries:
            if holds_batches and entry.size >= KEPT_BYTES:
                self._join(writer, run, result)
                run, size = [], 0
                writer.add_parts(self._parts([entry], result))
                continue
            run.append(entry)
            size += entry.size
            if size >= CHUNK_BYTES:
                self._join(writer, run, result)
                run, size = [], 0
        self._join(writer, run, result)

    def _join(self, writer: SegmentWriter, run: Sequence[Entry], result: ReadResult) -> None:
        if run:
            whole = b"".join(self._parts(run, result))
            writer.add_run(whole, headers_in(whole))

    def _parts(self, run: Sequence[Entry], result: ReadResult) -> list[Buffer]:
        codec = compression.BY_NAME.get(self.topic.policy.compression_type, compression.NONE)
        return layout_of(self.topic).batches_of(
            run, run[0].first, result.epoch, codec, transactions=result.stable is not None
        )

    async def finish(
        self, writer: SegmentWriter, cluster_id: str, created_ms: int
    ) -> tuple[str, list[Buffer]]:
        """Return the id and the parts of the collected segment, with its aborted transactions."""
        policy = self.topic.policy
        header = SegmentHeader(
            id=uuid.uuid4().hex[:ID_DIGITS],
            cluster_id=cluster_id,
            topic=self.topic.name,
            topic_id=self.topic.id,
            partition=self.partition,
            first=writer.first,
            last=writer.last,
            records=0,
            bytes=0,
            max_timestamp=-1,
            storage_format=policy.storage_format,
            offset_mode=policy.offset_mode,
            created_ms=created_ms,
        )
        aborted = await self.aborted(writer.first, writer.last)
        return header.id, writer.finish(header, aborted)

    async def aborted(self, first: int, last: int) -> list[AbortedRow]:
        """Return the aborted transactions with a record from `first` to `last`."""
        key = self.topic.partition(self.partition).aborted_txns
        flat = await self.store.command("ZRANGEBYSCORE", key, first, "+inf", "WITHSCORES")
        rows = map(AbortedRow.parse, flat[::2], flat[1::2])
        return [row for row in rows if row.first <= last]


MAX_SEGMENT_BYTES = 32 << 20
"""Max bytes of a segment: it is built in memory."""
LEASE_MS = 4000
"""Duration of the lease: bounds the pause after a crash, while producers may have to wait."""
RENEW_S = 1.0
"""Seconds between two renewals of the lease during a copy."""


class SegmentBuffers:
    """Lends buffers to the copies of one process, and keeps one of them.

    32 MB of fresh memory cost 8,000 page faults.
    """

    def __init__(self) -> None:
        self._kept: bytearray | None = None
        self._is_used = False

    def take(self) -> bytearray:
        """Return a buffer of any size and content."""
        self._is_used = True
        found, self._kept = self._kept, None
        return bytearray() if found is None or _is_in_use(found) else found

    def give_back(self, buffer: bytearray) -> None:
        """Keep the buffer for the next segment. Its object must be written, or never have been."""
        self._kept = buffer

    def drop_unused(self) -> None:
        """Free the memory if no segment was copied since the last call."""
        if not self._is_used:
            self._kept = None
        self._is_used = False


def _is_in_use(buffer: bytearray) -> bool:
    """Return whether a view of the buffer exists: Python then refuses to resize it."""
    try:
        buffer.append(0)
    except BufferError:
        return True
    buffer.pop()
    return False


@dataclass(eq=False, repr=False)
class PartitionCopier:
    """Copies one partition; `holder` names this process in the lease."""

    store: AsyncStore
    segments: SegmentStore
    cluster_id: str
    holder: str
    topic: Topic
    partition: int
    buffers: SegmentBuffers
    cache: ReadCache | None = None

    def __post_init__(self) -> None:
        self._collector = Collector(
            self.store,
            self.topic,
            self.partition,
            None if self.cache is None else CopyCache(self.cache),
        )
        self.lag: tuple[int, int] | None = None
        """Records and bytes that were not copied when the lease was acquired; None if another
        process holds it."""

    async def copy_segment(self, at_once: tuple[int, int] | None = None) -> int:
        """Copy the next segment if it is due. Returns its bytes, 0 if there is none.

        `at_once`: min and max bytes of a segment that is due now, whatever its age.
        """
        claim = await self._claim()
        self.lag = (claim.records, claim.bytes) if claim.fence else None
        if claim.error or not claim.fence or not await self._is_due(claim, at_once):
            return 0
        renewal = asyncio.create_task(self._renew(claim.fence))
        try:
            return await self._copy(claim, at_once)
        finally:
            renewal.cancel()

    async def _copy(self, claim: ClaimCopyReply, at_once: tuple[int, int] | None) -> int:
        policy = self.topic.policy
        max_bytes = segment_bytes(policy) if at_once is None else at_once[1]
        buffer = self.buffers.take()
        writer = await self._collector.collect(claim.first, max_bytes, buffer=buffer)
        now_ms = int(time() * 1000)
        may_copy = at_once is not None or self._may_copy(claim, writer, now_ms)
        size = 0
        if writer.size and may_copy:
            size = await self._publish(claim.fence, writer, now_ms, at_once is not None)
        # After an exception the object may still be being written.
        self.buffers.give_back(buffer)
        return size

    def _may_copy(self, claim: ClaimCopyReply, writer: SegmentWriter, now_ms: int) -> bool:
        """Return whether the segment is old enough, or enough was appended after it."""
        lag_ms, lag_bytes = self.topic.policy.copy_lags
        is_old = lag_ms == 0 or (lag_ms > 0 and writer.max_timestamp <= now_ms - lag_ms)
        return is_old or 0 <= lag_bytes <= claim.bytes - writer.size

    async def _claim(self) -> ClaimCopyReply:
        """Acquire or renew the partition's lease."""
        topic, number = self.topic, self.partition
        return await self.store.run(
            topic.partition(number).claim_copy(holder=self.holder, ttl_ms=LEASE_MS)
        )

    async def _renew(self, fence: int) -> None:
        """Renew the lease until cancelled, or until another process has it."""
        claimed = fence
        while claimed == fence:
            await asyncio.sleep(RENEW_S)
            with suppress(StoreError):
                claimed = (await self._claim()).fence

    async def _publish(
        self, fence: int, writer: SegmentWriter, now_ms: int, is_urgent: bool
    ) -> int:
        """Write the object, then add it to the log; delete it if the script refuses it."""
        topic, number = self.topic, self.partition
        segment_id, parts = await self._collector.finish(writer, self.cluster_id, now_ms)
        name, size = (
            object_name(self.cluster_id, topic.id, number, writer.first, segment_id),
            sum(map(len, parts)),
        )
        is_read_soon = is_urgent or topic.policy.prefers_segments
        await self.segments.put(name, parts, is_read_soon=is_read_soon)
        reply = await self.store.run(
            topic.partition(number).add_segment(
                fence=fence,
                first=writer.first,
                last=writer.last,
                records=writer.records,
                size=size,
                row=f"{size - writer.size}:{writer.max_timestamp}:{segment_id}",
            )
        )
        if not reply.added:
            await self.segments.delete(name)
            return 0
        if self.cache is not None:
            self.cache.drop_unread(topic, number, writer.first, writer.last)
        return size

    async def _is_due(self, claim: ClaimCopyReply, at_once: tuple[int, int] | None) -> bool:
        """Return whether there are bytes for a segment, or the first record is old enough."""
        policy = self.topic.policy
        if at_once is not None:
            return claim.bytes >= at_once[0]
        if claim.bytes >= segment_bytes(policy):
            return True
        result = await self._collector.read(claim.first, 1)
        find = partial(layout_of(self.topic).timestamps_of, self.topic)
        rows = [await in_thread(partial(find, entry, 0)) for entry in result.entries]
        oldest = max((time for found in rows for time, _ in found), default=0)
        return bool(result.entries) and oldest + policy.segment_ms <= time() * 1000


def segment_bytes(policy: TopicPolicy) -> int:
    """Return the bytes at which a segment is written."""
    return min(policy.segment_bytes, MAX_SEGMENT_BYTES)
