"""Read records below a partition's local start, from segments.

Rules
- The manifest's row, then the footer, then the batches: of a local directory as many as the fetch
  takes, of an object store blocks of 1 MiB. Rows, footers and blocks are cached.
- The next part is read ahead. A read that takes longer than remote.fetch.max.wait.ms returns no
  records; the client's next fetch finds its bytes in the cache, or in the page cache.
- A failed read is a RemoteStorageError, which clients get as KAFKA_STORAGE_ERROR: they retry.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from korvet import logfmt
from korvet.keys import Keys
from korvet.log.entry import Entry
from korvet.log.read_request import ReadRequest
from korvet.log.read_result import ReadResult
from korvet.metrics import Metrics
from korvet.remote_log.footers import Footers
from korvet.remote_log.manifest import ManifestStore, SegmentRow, find_segment
from korvet.remote_log.slices import ChunkSource, read_slices
from korvet.remote_log.store import RemoteStorageError, SegmentStore
from korvet.remote_log.stored_entries import entries_of
from korvet.scripts import log
from korvet.topics.table import Topic

MAX_ROWS = 10_000
"""Partitions whose segments are known."""
ROWS_EACH = 8
"""Segments that are known of a partition: consumers may be at several depths."""
NEWEST = -3
logger = logfmt.get("remote_log.reader")


class RemoteLogReader:
    """Reads segments for LogReader; `source` reads their chunks."""

    def __init__(
        self,
        store: ManifestStore,
        keys: Keys,
        segments: SegmentStore,
        source: ChunkSource,
        metrics: Metrics,
        cluster_id: Callable[[], str],
        max_wait_s: Callable[[], float],
    ) -> None:
        self._store = store
        self._keys = keys
        self._footers = Footers(segments)
        self.source = source
        self._metrics = metrics
        self._cluster_id = cluster_id
        self._max_wait_s = max_wait_s
        self._rows: OrderedDict[tuple[str, int], tuple[SegmentRow, ...]] = OrderedDict()

    async def read(self, request: ReadRequest, result: ReadResult) -> bool:
        """Add the records from the request's offset on to the result, as far as segments have them.

        Returns False, and sets the error, if the store failed.
        """
        try:
            if request.batches:
                async with asyncio.timeout(self._max_wait_s()):
                    await self._read(request, result)
            else:
                await self._read(request, result)
        except TimeoutError:
            pass
        except RemoteStorageError as error:
            logger.error(
                "remote read failed",
                topic=request.topic.name,
                partition=request.partition,
                offset=request.offset,
                reason=str(error),
            )
            return False
        self._metrics.remote_fetched_bytes.add(result.size)
        return True

    async def _read(self, request: ReadRequest, result: ReadResult) -> None:
        offset = max(request.offset, result.start)
        while True:
            row = await self._row(request, offset)
            if row is None:
                raise RemoteStorageError(f"no segment has offset {offset}")
            name = row.object_name(self._cluster_id(), request.topic.id, request.partition)
            segment = await self._footers.get(name, row.data_bytes, row.size)
            parts, after, count = await read_slices(
                self.source, name, segment, offset, request.max_bytes
            )
            if parts:
                break
            offset = row.last + 1
        if request.committed:
            result.aborted = segment.aborted_in(offset, after - 1)
        result.size = sum(map(len, parts))
        if request.batches:
            result.remote, result.remote_next, result.remote_records = parts, after, count
        else:
            first = offset
            result.entries = [entry for entry in _entries(request, parts) if entry.last >= first]

    async def find_timestamp(
        self, topic: Topic, partition: int, timestamp: int | None
    ) -> tuple[int, int] | None:
        """Return (timestamp, offset) of the chunk with the first record at or after a timestamp.

        None as timestamp: with the newest record.
        """
        reply = await self._store.run(
            log.find_segment(
                *(self._keys, topic.name, partition),
                topic_id=topic.id,
                timestamp=NEWEST if timestamp is None else timestamp,
            )
        )
        if not reply.row:
            return None
        row = SegmentRow.parse(reply.row)
        name = row.object_name(self._cluster_id(), topic.id, partition)
        segment = await self._footers.get(name, row.data_bytes, row.size)
        chunk = segment.chunk_since(reply.timestamp)
        if chunk is None:
            raise RemoteStorageError(f"{name}: no record at or after {reply.timestamp} ms")
        return reply.timestamp, segment.rows.offsets[chunk]

    async def _row(self, request: ReadRequest, offset: int) -> SegmentRow | None:
        """Return the segment with the offset, or the next one; None if there is none."""
        key = (request.topic.id, request.partition)
        rows = self._rows.get(key, ())
        for row in rows:
            if row.first <= offset <= row.last:
                return row
        found = await find_segment(
            self._store, self._keys, request.topic.name, request.partition, offset
        )
        if found is not None:
            self._rows[key] = (found, *rows[: ROWS_EACH - 1])
            self._rows.move_to_end(key)
            if len(self._rows) > MAX_ROWS:
                self._rows.popitem(last=False)
        return found


def _entries(request: ReadRequest, parts: list[memoryview]) -> list[Entry]:
    return [entry for part in parts for entry in entries_of(request.topic, part)]
