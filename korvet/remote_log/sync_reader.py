"""Read segments without an event loop: for Spark's tasks, the commands and the library.

Rules
- The manifest's row, then the footer, then runs of chunks; the next run is read ahead.
- Everything is verified: the object's name, the footer, the chunks. An error names topic,
  partition and offsets.
- Segments follow one another without a gap: an offset that none has is an error. The caller checks
  whether the log start passed it meanwhile.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol, Self

from korvet.remote_log.manifest import (
    CLUSTER_ID,
    REMOTE_STORAGE_URL,
    SegmentRow,
    checked_footer,
)
from korvet.remote_log.store import RemoteStorageError, SegmentStore
from korvet.scripts.keys import Keys, Partition
from korvet.wire.segments import CorruptSegment, Segment

RUN_BYTES = 4 << 20
"""Bytes of a range read, unless one chunk is larger."""
MAX_FOOTERS = 100


class ManifestStore(Protocol):
    """Store calls that lookups use, such as those of SyncStore."""

    def command(self, *command: Any) -> Any: ...


class Run(NamedTuple):
    """Verified batches of a segment: the first may begin below the requested offset."""

    segment: Segment
    batches: memoryview
    next_offset: int
    """The first offset after the run; batches of the next run begin there or above."""


class SyncSegmentReader:
    """Reads the segments of one cluster. A context manager; one thread may use it."""

    def __init__(
        self, store: ManifestStore, keys: Keys, segments: SegmentStore, cluster_id: str
    ) -> None:
        self.keys = keys
        self._store = store
        self._segments = segments
        self._cluster_id = cluster_id
        self._footers: dict[str, Segment] = {}
        self._reads_ahead = ThreadPoolExecutor(1, "korvet-segments")

    @classmethod
    def open(cls, store: ManifestStore, keys: Keys, url: str = "") -> Self:
        """Open the remote store at `url`, or else the one that the brokers use.

        Raises RemoteStorageError if Redis does not have the URL.
        """
        cluster_id, stored = store.command("HMGET", keys.cluster(), CLUSTER_ID, REMOTE_STORAGE_URL)
        if cluster_id is None:
            raise RemoteStorageError(f"{keys.cluster()}: no broker has stored a cluster id")
        if not url and stored is None:
            raise RemoteStorageError(
                "no broker has stored the URL of the remote store: start a broker with "
                "remote.storage.url, or give the URL yourself (remoteStorageUrl in Spark)"
            )
        segments = SegmentStore(url or stored.decode(), create=False)
        return cls(store, keys, segments, cluster_id.decode())

    def close(self) -> None:
        """Stop reading ahead."""
        self._reads_ahead.shutdown(wait=False, cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def rows(self, partition: Partition, start: int, end: int) -> list[SegmentRow]:
        """Return the segments with offsets from `start` up to `end` (exclusive), in order."""
        key = partition.segments
        found = self._store.command(
            "ZREVRANGEBYSCORE", key, start, "-inf", "LIMIT", 0, 1
        ) + self._store.command("ZRANGEBYSCORE", key, f"({start}", f"({end}")
        return [row for row in map(SegmentRow.parse, found) if row.last >= start]

    def cuts(self, partition: Partition, start: int, end: int, size: int) -> Iterator[int]:
        """Yield offsets up to `end` that divide the segments into pieces of about `size` bytes."""
        part_size = 0
        for row in self.rows(partition, start, end):
            part_size += row.data_bytes
            if part_size >= size:
                yield min(row.last + 1, end)
                part_size = 0
        if part_size and start < end:
            yield end

    def bytes_in(self, partition: Partition, start: int, end: int) -> int:
        """Return about how many bytes segments have of these offsets."""
        total = 0
        for row in self.rows(partition, start, end) if start < end else ():
            share = min(row.last + 1, end) - max(row.first, start)
            total += row.data_bytes * share // (row.last + 1 - row.first)
        return total

    def _segment(self, partition: Partition, row: SegmentRow) -> tuple[str, Segment]:
        """Return the name of a segment's object, and its footer, verified."""
        name = row.object_name(self._cluster_id, partition.topic_id, partition.number)
        found = self._footers.get(name)
        if found is None:
            data = self._segments.get_blocking(name, row.data_bytes, row.size)
            found = checked_footer(name, data)
            if len(self._footers) >= MAX_FOOTERS:
                self._footers.clear()
            self._footers[name] = found
        return name, found

    def runs(self, partition: Partition, start: int, end: int) -> Iterator[Run]:
        """Yield the batches with offsets from `start` up to `end` (exclusive), in order."""
        at, log = start, f"{partition.topic}-{partition.number}"
        while at < end:
            row = next(iter(self.rows(partition, at, at + 1)), None)
            if row is None:
                raise RemoteStorageError(f"{log}: offsets {at} to {end - 1} are in no segment")
            last = min(row.last + 1, end)
            try:
                yield from self._runs_of(*self._segment(partition, row), at, last)
            except RemoteStorageError as error:
                raise RemoteStorageError(
                    f"{log}: offsets {at} to {last - 1} cannot be read from "
                    f"{self._segments.url}: {error}"
                ) from error
            at = last

    def skip_records(
        self, partition: Partition, start: int, end: int, records: int, *, exact: bool
    ) -> tuple[int, int]:
        """Return the offset after at most `records` records from `start` on, and their count.

        Goes up to `end`. `exact`: offsets are counted within a chunk, as one per record; else
        whole chunks, at least one.
        """
        at, counted = start, 0
        for row in self.rows(partition, start, end):
            _, segment = self._segment(partition, row)
            edges = [each.offset for each in segment.rows[1:]] + [row.last + 1]
            for chunk, edge in zip(segment.rows, edges, strict=True):
                stop = min(edge, end)
                if stop <= at:
                    continue
                count = min(chunk.records, stop - at)
                if counted + count > records:
                    if exact:
                        return at + records - counted, records
                    return (at, counted) if counted else (stop, count)
                at, counted = stop, counted + count
        return max(at, end), counted

    def find_chunk(self, partition: Partition, start: int, end: int, timestamp: int) -> int | None:
        """Return the first offset of the first chunk with a record at or after a timestamp."""
        for row in self.rows(partition, start, end):
            if row.max_timestamp >= timestamp:
                _, segment = self._segment(partition, row)
                chunk = segment.chunk_since(timestamp)
                if chunk is not None:
                    return segment.rows[chunk].offset
        return None

    def _runs_of(self, name: str, segment: Segment, start: int, end: int) -> Iterator[Run]:
        """Yield a segment's runs; the next one is read while the caller uses one."""
        edges = _edges(segment, start, end)
        pending = self._ask(name, segment, *edges[0])
        for number, (first, after) in enumerate(edges, 1):
            data = pending.result()
            if number < len(edges):
                pending = self._ask(name, segment, *edges[number])
            try:
                segment.verify(first, data)
            except CorruptSegment as error:
                raise RemoteStorageError(f"{name}: {error}") from None
            rows = segment.rows
            above = rows[after].offset if after < len(rows) else segment.header.last + 1
            yield Run(segment, data, above)

    def _ask(self, name: str, segment: Segment, first: int, after: int) -> "Future[memoryview]":
        begin, stop = segment.rows[first].position, segment.end_of(after - 1)
        return self._reads_ahead.submit(self._segments.get_blocking, name, begin, stop)


def _edges(segment: Segment, start: int, end: int) -> list[tuple[int, int]]:
    """Return first chunk and the one after the last, for each range read of these offsets."""
    found: list[tuple[int, int]] = []
    first, last = segment.chunk_of(start), segment.chunk_of(end - 1)
    for chunk in range(first, last + 1):
        if segment.end_of(chunk) - segment.rows[first].position > RUN_BYTES and chunk > first:
            found.append((first, chunk))
            first = chunk
    return [*found, (first, last + 1)]
