"""The manifest: one row per segment, in Redis; `lua/log/add_segment.lua` writes it."""

from typing import Any, NamedTuple, Protocol

import msgspec

from korvet.remote_log.store import RemoteStorageError
from korvet.scripts.keys import Partition
from korvet.topics.table import Topic
from korvet.wire.segments import CorruptSegment, Segment, read_footer

CLUSTER_ID, REMOTE_STORAGE_URL = "cluster_id", "remote_storage_url"
"""Fields of the cluster hash; `lua/broker/set_storage.lua` writes the second one."""


class ManifestStore(Protocol):
    """Store calls that lookups use."""

    async def command(self, *command: Any) -> Any: ...
    async def run(self, call: Any) -> Any: ...


class SegmentRow(msgspec.Struct, frozen=True):
    """A segment: its offsets, its counts, and the object that holds it."""

    first: int
    last: int
    records_before: int
    records: int
    bytes_before: int
    size: int
    """Bytes of the object."""
    data_bytes: int
    """Bytes of its batches: the position of the footer."""
    max_timestamp: int
    id: str

    @classmethod
    def parse(cls, row: bytes) -> "SegmentRow":
        """Return the segment of a row of the manifest; `lua/lib/segments.lua` describes rows."""
        *texts, name = row.decode().split(":")[:9]
        first, span, records_before, records, bytes_before, size, footer, newest = map(int, texts)
        return cls(
            first,
            first + span,
            records_before,
            records,
            bytes_before,
            size,
            size - footer,
            newest,
            name,
        )

    def object_name(self, cluster_id: str, topic_id: str, partition: int) -> str:
        """Return the name of the segment's object."""
        return object_name(cluster_id, topic_id, partition, self.first, self.id)


class ManifestTotals(NamedTuple):
    """Totals of a partition's segments; `local_start`: the first offset in Redis."""

    local_start: int
    segments: int
    segment_records: int
    segment_bytes: int


async def totals(store: ManifestStore, names: Partition) -> ManifestTotals:
    """Return the totals of a partition's manifest."""
    fields = ("start", "local_start", "tiered_records", "tiered_bytes")
    start, local_start, records, size = (
        int(each or 0) for each in await store.command("HMGET", names.log, *fields)
    )
    count = await store.command("ZCARD", names.segments)
    rows = await store.command("ZRANGE", names.segments, 0, 0)
    if not rows:
        return ManifestTotals(local_start or start, 0, 0, 0)
    first = SegmentRow.parse(rows[0])
    return ManifestTotals(
        local_start or start, count, records - first.records_before, size - first.bytes_before
    )


class RemoteOnly(NamedTuple):
    """Records and bytes in segments only, and in the whole log of a partition."""

    remote_only_records: int
    remote_only_bytes: int
    total_records: int
    total_bytes: int


async def count_remote_only(
    store: ManifestStore,
    topic: Topic,
    partition: int,
    *,
    start: int,
    local_start: int,
    local_bytes: int,
) -> RemoteOnly:
    """Return the records below the first one in Redis, and those of the whole log.

    Bytes of a segment that is in Redis in part are an estimate.
    """
    handle = topic.partition(partition)
    total, local = [
        (await store.run(handle.lag(offset=offset))).records for offset in (start, local_start)
    ]
    below = await _bytes_below(store, handle, local_start)
    remote_only = max(0, below - await _bytes_below(store, handle, start))
    return RemoteOnly(total - local, remote_only, total, remote_only + local_bytes)


async def _bytes_below(store: ManifestStore, partition: Partition, offset: int) -> int:
    """Return the bytes of all segments so far, below an offset."""
    key = partition.segments
    rows = await store.command("ZREVRANGEBYSCORE", key, f"({offset}", "-inf", "LIMIT", 0, 1)
    if not rows:
        return 0
    row = SegmentRow.parse(rows[0])
    share = min(offset, row.last + 1) - row.first
    return row.bytes_before + row.size * share // (row.last + 1 - row.first)


def object_name(cluster_id: str, topic_id: str, partition: int, first: int, name: str) -> str:
    """Return the name of a segment's object."""
    return f"{cluster_id}/{topic_id}/{partition}/{first:020d}-{name}.segment"


async def find_segment(
    store: ManifestStore, partition: Partition, offset: int
) -> SegmentRow | None:
    """Return the segment with the offset, or else the next one; None if there is none."""
    key = partition.segments
    rows = await store.command("ZREVRANGEBYSCORE", key, offset, "-inf", "LIMIT", 0, 1)
    if rows:
        found = SegmentRow.parse(rows[0])
        if found.last >= offset:
            return found
    rows = await store.command("ZRANGEBYSCORE", key, f"({offset}", "+inf", "LIMIT", 0, 1)
    return SegmentRow.parse(rows[0]) if rows else None


def checked_footer(name: str, footer: memoryview) -> Segment:
    """Return the footer, if it is that of the object's name: objects may have been swapped."""
    try:
        segment = read_footer(footer)
    except CorruptSegment as error:
        raise RemoteStorageError(f"{name}: {error}") from None
    header = segment.header
    own = f"{header.topic_id}/{header.partition}/{header.first:020d}-{header.id}.segment"
    if not name.endswith(own):
        raise RemoteStorageError(f"{name}: the object holds another segment, {own}")
    return segment
