"""Read committed records of one partition in Redis into a segment."""

import uuid
from collections.abc import Sequence
from time import time

from korvet.keys import Keys
from korvet.log.entry import Entry
from korvet.log.layouts import layout_of
from korvet.log.read_request import ReadRequest
from korvet.log.read_result import ReadResult
from korvet.log.reader import LogReader
from korvet.store.async_store import AsyncStore
from korvet.topics.table import Topic
from korvet.wire import compression
from korvet.wire.batch_runs import headers_in
from korvet.wire.segments import CHUNK_BYTES, AbortedRow, SegmentHeader, SegmentWriter

ID_DIGITS = 12
READ_BYTES = 1 << 20
LONGEST_S = 20.0
"""Seconds of reading after which a segment is written as it is."""


class Collector:
    """Reads one partition, without the segments that it has."""

    def __init__(self, store: AsyncStore, keys: Keys, topic: Topic, partition: int) -> None:
        self._store = store
        self._keys = keys
        self._topic = topic
        self._partition = partition
        self._reader = LogReader(store, keys)
        self._reader.use_ranges(store, ahead=False)

    async def collect(
        self, first: int, most: int, end: int | None = None, buffer: bytearray | None = None
    ) -> SegmentWriter:
        """Return the records from `first` on, below `end`, as a segment of about `most` bytes."""
        writer, offset, began = SegmentWriter(first, buffer), first, time()
        while writer.size < most and time() - began < LONGEST_S:
            room = min(READ_BYTES, max(most - writer.size, 1))
            result = await self.read(offset, room, batches=end is None)
            if result.remote:
                for batch in result.remote:
                    writer.add(batch)
                offset = result.remote_next
                continue
            entries = [each for each in result.entries if end is None or each.last < end]
            if result.error or not entries:
                break
            for run in _runs(entries):
                self._add(writer, run, result)
            offset = entries[-1].last + 1
        return writer

    async def read(self, offset: int, max_bytes: int, *, batches: bool = False) -> ReadResult:
        """Return the committed entries from the offset on, or `batches` if there are large ones."""
        return await self._reader.read(
            ReadRequest(
                *(self._topic, self._partition, offset, max_bytes),
                committed=True,
                batches=batches,
                decompress=True,
            )
        )

    def _add(self, writer: SegmentWriter, run: Sequence[Entry], result: ReadResult) -> None:
        codec = compression.BY_NAME.get(self._topic.policy.compression_type, compression.NONE)
        parts = layout_of(self._topic).batches_of(
            run, run[0].first, result.epoch, codec, transactions=result.stable is not None
        )
        whole = memoryview(b"".join(parts))
        for at, size, _ in headers_in(whole):
            writer.add(whole[at : at + size])

    async def finish(
        self, writer: SegmentWriter, cluster_id: str, created_ms: int
    ) -> tuple[str, memoryview]:
        """Return the id and the bytes of the collected segment, with its aborted transactions."""
        policy = self._topic.policy
        header = SegmentHeader(
            id=uuid.uuid4().hex[:ID_DIGITS],
            cluster_id=cluster_id,
            topic=self._topic.name,
            topic_id=self._topic.id,
            partition=self._partition,
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
        key = self._keys.partition(self._topic.name, self._partition).aborted_txns
        flat = await self._store.command("ZRANGEBYSCORE", key, first, "+inf", "WITHSCORES")
        rows = map(AbortedRow.parse, flat[::2], flat[1::2])
        return [row for row in rows if row.first <= last]


def _runs(entries: Sequence[Entry]) -> list[Sequence[Entry]]:
    """Split entries into runs of about a chunk each."""
    runs, begin, size = [], 0, 0
    for at, entry in enumerate(entries):
        size += entry.size
        if size >= CHUNK_BYTES:
            runs.append(entries[begin : at + 1])
            begin, size = at + 1, 0
    if begin < len(entries):
        runs.append(entries[begin:])
    return runs
