"""Read committed records of one partition in Redis into a segment."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from time import time

from korvet.log.entry import Entry
from korvet.log.layouts import layout_of
from korvet.log.read_cache import ReadCache
from korvet.log.read_result import ReadRequest, ReadResult
from korvet.log.reader import LogReader
from korvet.store.async_store import AsyncStore
from korvet.topics.table import Topic
from korvet.wire import compression
from korvet.wire.batch_runs import headers_in
from korvet.wire.records import Buffer
from korvet.wire.segment_writer import SegmentWriter
from korvet.wire.segments import CHUNK_BYTES, AbortedRow, SegmentHeader

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
