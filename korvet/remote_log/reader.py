"""Read records below a partition's local start, from segments.

Rules
- The manifest's row, then the footer, then the batches: of a local directory as many as the fetch
  takes, of an object store blocks of 1 MiB. Rows, footers and blocks are cached.
- A fetch whose row and footer are known, and whose bytes the page cache has, is one short call
  without waiting: `read_now`. It ends at the end of a chunk, and the next one begins there.
- The next part is read ahead. A read that takes longer than remote.fetch.max.wait.ms returns no
  records; the client's next fetch finds its bytes in the cache, or in the page cache.
- A failed read is a RemoteStorageError, which clients get as KAFKA_STORAGE_ERROR: they retry.
- Whole chunks are sent as they are: their batches are looked at only where an offset, or the limit
  in bytes, is inside a chunk.
- Records that Redis has too are read without waiting, or there: `read_copy`. What it lacks is read
  by a task meanwhile, which also logs why a segment cannot be read.
"""

import asyncio
import struct
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import NamedTuple

from msgspec.structs import replace

from korvet.base import logfmt
from korvet.base.errors import ErrorCode
from korvet.base.metrics import Metrics
from korvet.log.entry import Entry
from korvet.log.read_result import ReadRequest, ReadResult
from korvet.remote_log.chunk_cache import ChunkCache, LocalChunks
from korvet.remote_log.known_segments import CACHE_BYTES, MAX_PARTITIONS, Footers, KnownSegments
from korvet.remote_log.manifest import ManifestStore
from korvet.remote_log.store import RemoteStorageError, SegmentStore
from korvet.remote_log.stored_entries import entries_of
from korvet.store.errors import StoreError
from korvet.topics.table import Topic
from korvet.wire.records import BadBatch
from korvet.wire.segments import (
    CorruptSegment,
    Segment,
    count_records,
    find_batches,
    last_offset,
    skip_batches,
)


class Slices(NamedTuple):
    """Consecutive batches of a segment; none if all of it is below the requested offset."""

    parts: list[memoryview]
    after: int
    """An offset above theirs, at or below the next batch's."""
    records: int


ChunkSource = ChunkCache | LocalChunks
"""Reads verified chunks of segments."""


async def read_slices(
    source: ChunkSource, name: str, segment: Segment, offset: int, max_bytes: int
) -> Slices:
    """Return the batches from the one with the offset on.

    They fit max_bytes, or are one batch. Three quarters of max_bytes are enough if the next chunk
    would have to be cut.
    """
    parts: list[memoryview] = []
    rows = segment.rows
    chunk, after, count, room = rows.at_offset(offset), -1, 0, max(max_bytes, 0)
    while chunk < len(rows):
        stop = segment.chunks_within(chunk, room)
        if parts and 4 * room < max_bytes and segment.end_of(chunk) - rows.positions[chunk] > room:
            break
        stop = min(stop, source.limit(segment, chunk))
        if parts and source.lets_others_run:
            await asyncio.sleep(0)
        data = await source.read(name, segment, chunk, stop)
        begin = skip_batches(data, offset) if offset > rows.offsets[chunk] else 0
        size, reached = len(data) - begin, segment.offset_after(stop - 1)
        if size > room:
            begin, end, after_cut = find_batches(data, begin, offset, room)
            if not parts or end - begin <= room:
                parts.append(data[begin:end])
                after, count = after_cut, count + count_records(parts[-1])
            break
        if size:
            parts.append(data[begin:] if begin else data)
            room, after = room - size, reached
            count += count_records(parts[-1]) if begin else sum(rows.records[chunk:stop])
        if room <= 0:
            break
        chunk = stop
    return Slices(parts, after, count)


MAX_READERS = 1000
"""Sequential readers whose next chunk is known."""
READ_BYTES = 2 << 20
"""Bytes of a read without waiting: others wait for as long as it takes."""
PREPARE_S = 1.0
"""Seconds between two reads that prepare those of one partition's copied records."""
FORGED = (CorruptSegment, BadBatch, struct.error)
"""Errors of batches that have the right checksums, and that no broker wrote."""
TIME = "time"
"""The offset mode whose offsets have gaps between batches."""
logger = logfmt.get("remote_log.reader")


class ReadyBatches(NamedTuple):
    """Verified batches that were read without waiting."""

    data: memoryview
    after: int
    """An offset above theirs, at or below the next batch's."""
    records: int
    segment: Segment


@dataclass(eq=False, repr=False)
class RemoteLogReader:
    """Reads segments for LogReader; `source` reads their chunks."""

    store: ManifestStore
    segments: SegmentStore
    source: ChunkSource
    metrics: Metrics
    cluster_id: Callable[[], str]
    max_wait_s: Callable[[], float]
    connection_epoch: Callable[[], int] = lambda: 0
    footer_bytes: Callable[[], int] = lambda: CACHE_BYTES

    def __post_init__(self) -> None:
        self._known = KnownSegments(self.store, self.cluster_id, self.connection_epoch)
        self._footers = Footers(self.segments, self.footer_bytes)
        self._next_chunks: dict[tuple[str, int], int] = {}
        """The chunk that a reader continues with, by object and offset."""
        self._loading: dict[tuple[str, int], asyncio.Task[None]] = {}
        """Partitions whose next segment is looked up."""
        self._prepares_at: dict[tuple[str, int], float] = {}
        self._preparing: set[asyncio.Task[None]] = set()

    async def read(self, request: ReadRequest, result: ReadResult) -> bool:
        """Add the records from the request's offset on to the result, as far as segments have them.

        Returns False, and sets the error, if the store failed.
        """
        try:
            if request.batches and self._add_ready(request, result):
                pass
            elif request.batches:
                async with asyncio.timeout(self.max_wait_s()):
                    await self._read(request, result)
            else:
                await self._read(request, result)
        except TimeoutError:
            pass
        except RemoteStorageError as error:
            logger.error_again(
                "remote read failed",
                topic=request.topic.name,
                partition=request.partition,
                offset=request.offset,
                reason=str(error),
            )
            self._known.forget(request.topic, request.partition)
            return False
        self.metrics.remote_fetched_bytes.add(result.size)
        return True

    @property
    def serves_copies(self) -> bool:
        """Return whether a read of records that Redis has too costs less than from Redis."""
        return self.source.serves_copies

    def read_copy(self, request: ReadRequest, result: ReadResult) -> bool:
        """Add records that Redis has too; False if that has to wait or fails: read Redis."""
        wanted = replace(request, max_bytes=min(request.max_bytes, READ_BYTES))
        if self._add_ready(wanted, result):
            self.metrics.remote_fetched_bytes.add(result.size)
            return True
        key, now = (request.topic.id, request.partition), monotonic()
        if now >= self._prepares_at.get(key, 0.0):
            if len(self._prepares_at) >= MAX_PARTITIONS:
                self._prepares_at.clear()
            self._prepares_at[key] = now + PREPARE_S
            task = asyncio.create_task(self._prepare(wanted))
            self._preparing.add(task)
            task.add_done_callback(self._preparing.discard)
        return False

    async def _prepare(self, request: ReadRequest) -> None:
        """Read row, footer and bytes, so that later fetches do not have to wait for them."""
        try:
            async with asyncio.timeout(self.max_wait_s()):
                await self._read(request, ReadResult(ErrorCode.NONE))
        except (TimeoutError, StoreError) as error:
            self._known.forget(request.topic, request.partition)
            logger.warning_again(
                "segment not readable, reading Redis",
                topic=request.topic.name,
                partition=request.partition,
                reason=str(error) or "remote.fetch.max.wait.ms passed",
            )

    def _add_ready(self, request: ReadRequest, result: ReadResult) -> bool:
        """Add what `read_now` returns; return whether it returns something."""
        offset = max(request.offset, result.start)
        ready = self.read_now(request.topic, request.partition, offset, request.max_bytes)
        if ready is None:
            return False
        if request.committed:
            result.aborted = ready.segment.aborted_in(offset, ready.after - 1)
        result.size = len(ready.data)
        result.batches, result.next_offset = (ready.data,), ready.after
        result.record_count = ready.records
        return True

    def read_now(
        self, topic: Topic, partition: int, offset: int, max_bytes: int
    ) -> ReadyBatches | None:
        """Return batches from the offset on, of whole chunks that fit max_bytes.

        None if that has to wait, is too much at once, or fails: call `read`.
        """
        known = self._known.cached(topic, partition, offset)
        segment = None if known is None else self._footers.known(known.name)
        if known is None or segment is None or max_bytes > READ_BYTES:
            return None
        name, rows = known.name, segment.rows
        chunk = self._next_chunks.get((name, offset), -1)
        continues = chunk >= 0
        skips = chunk < 0 and offset > rows.offsets[chunk := rows.at_offset(offset)]
        start, stop = rows.positions[chunk], segment.chunks_within(chunk, max_bytes)
        if segment.end_of(stop - 1) - start > max_bytes:
            return None
        try:
            data = self.source.read_now(name, segment, chunk, stop)
        except RemoteStorageError:
            return None
        if data is None:
            return None
        if 2 * stop - chunk >= len(rows):
            self._load_next(topic, partition, known.row.last + 1)
        taken = _taken(segment, chunk, stop, data, offset if skips else -1)
        if taken is not None and stop < len(rows):
            self._continue_at(name, taken[1], stop)
            if continues:
                self.source.read_ahead(name, segment, stop, segment.chunks_within(stop, max_bytes))
        return taken[0] if taken is not None and taken[0].data else None

    def _continue_at(self, name: str, offset: int, chunk: int) -> None:
        """Note the chunk of the next read: in time mode the offset is below the chunk's first."""
        self._next_chunks[name, offset] = chunk
        if len(self._next_chunks) > MAX_READERS:
            del self._next_chunks[next(iter(self._next_chunks))]

    def _load_next(self, topic: Topic, partition: int, offset: int) -> None:
        """Read row and footer of the next segment before a reader comes to its end."""
        key = (topic.id, partition)
        if key in self._loading or self._known.cached(topic, partition, offset) is not None:
            return
        self._loading[key] = asyncio.create_task(self._load(topic, partition, offset))

    async def _load(self, topic: Topic, partition: int, offset: int) -> None:
        try:
            async with asyncio.timeout(self.max_wait_s()):
                found = await self._known.find(topic, partition, offset)
                if found is not None:
                    await self._footers.get(found.name, found.row.data_bytes, found.row.size)
        except (TimeoutError, StoreError):
            pass  # the fetch that needs the segment reports it
        finally:
            del self._loading[topic.id, partition]

    async def _read(self, request: ReadRequest, result: ReadResult) -> None:
        offset = max(request.offset, result.start)
        entries: list[Entry] = []
        while True:
            found = await self._known.find(request.topic, request.partition, offset)
            if found is None:
                raise RemoteStorageError(f"no segment has offset {offset}")
            row, name = found
            try:
                segment = await self._footers.get(name, row.data_bytes, row.size)
                parts, after, count = await read_slices(
                    self.source, name, segment, offset, request.max_bytes
                )
                if not request.batches:
                    entries = [each for part in parts for each in entries_of(request.topic, part)]
            except FORGED as error:
                raise RemoteStorageError(f"{name}: {error}") from None
            except RemoteStorageError:
                if await self._is_replaced(request, offset, name):
                    continue
                raise
            if parts:
                break
            offset = row.last + 1
        if request.committed:
            result.aborted = segment.aborted_in(offset, after - 1)
        result.size = sum(map(len, parts))
        if request.batches:
            result.batches, result.next_offset, result.record_count = parts, after, count
        else:
            first = offset
            result.entries = [entry for entry in entries if entry.last >= first]

    async def _is_replaced(self, request: ReadRequest, offset: int, name: str) -> bool:
        """Return whether another segment has the offset now: the topic was tiered again."""
        self._known.forget(request.topic, request.partition)
        found = await self._known.find(request.topic, request.partition, offset)
        return found is not None and found.name != name and found.row.first <= offset

    async def find_timestamp(
        self, topic: Topic, partition: int, timestamp: int | None
    ) -> tuple[int, int] | None:
        """Return (timestamp, offset) of the chunk with the first record at or after a timestamp.

        None as timestamp: with the newest record.
        """
        found = await self._known.find_timestamp(topic, partition, timestamp)
        if found is None:
            return None
        at, (row, name) = found
        segment = await self._footers.get(name, row.data_bytes, row.size)
        chunk = segment.chunk_since(at)
        if chunk is None:
            raise RemoteStorageError(f"{name}: no record at or after {at} ms")
        return at, segment.rows.offsets[chunk]


def _taken(
    segment: Segment, chunk: int, stop: int, data: memoryview, offset: int
) -> tuple[ReadyBatches, int] | None:
    """Return the batches of chunks, from an offset on unless it is -1, and where to continue.

    None if they are forged: `read` says so.
    """
    rows = segment.rows
    after = following = segment.offset_after(stop - 1)
    count = sum(rows.records[chunk:stop])
    try:
        if stop < len(rows) and segment.header.offset_mode == TIME:
            following = last_offset(data, rows.positions[stop - 1] - rows.positions[chunk]) + 1
        if offset >= 0:
            data = data[skip_batches(data, offset) :]
            count = count_records(data)
    except FORGED:
        return None
    return ReadyBatches(data, after, count, segment), following
