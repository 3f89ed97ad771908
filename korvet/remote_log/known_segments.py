"""The segments of partitions that a reader has looked up in the manifest.

Rules
- A lookup is repeated after a failed read, and after a reconnection: another server may have other
  segments.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from korvet.remote_log.manifest import ManifestStore, SegmentRow, checked_footer, find_segment
from korvet.remote_log.store import RemoteStorageError, SegmentStore
from korvet.topics.table import Topic
from korvet.wire.segments import Segment

CACHE_BYTES = 16 << 20
"""Bytes of footers in memory by default; one of a segment of 32 MiB has about 16 KiB."""


class Footers:
    """The last footers that were read: at least one, and up to `capacity` bytes of them."""

    def __init__(self, store: SegmentStore, capacity: Callable[[], int]) -> None:
        self.size = 0
        self._store = store
        self._capacity = capacity
        self._footers: OrderedDict[str, tuple[Segment, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._footers)

    def known(self, name: str) -> Segment | None:
        """Return the footer of an object if it is in memory."""
        found = self._footers.get(name)
        return None if found is None else found[0]

    async def get(self, name: str, begin: int, end: int) -> Segment:
        """Return the footer of an object, which has it at these positions."""
        found = self._footers.get(name)
        if found is not None:
            self._footers.move_to_end(name)
            return found[0]
        try:
            segment = checked_footer(name, await self._store.get(name, begin, end))
        except RemoteStorageError:
            await self._store.forget(name)
            raise
        if name not in self._footers:
            self._footers[name] = segment, end - begin
            self.size += end - begin
        capacity = self._capacity()
        while self.size > capacity and len(self._footers) > 1:
            _, (_, size) = self._footers.popitem(last=False)
            self.size -= size
        return segment


MAX_PARTITIONS = 10_000
"""Partitions whose segments are known."""
MAX_EACH = 8
"""Segments that are known of a partition: consumers may be at several depths."""
NEWEST = -3


class KnownSegment(NamedTuple):
    """A segment of a partition, and its object's name."""

    row: SegmentRow
    name: str


@dataclass(eq=False, repr=False)
class KnownSegments:
    """Finds segments by offset or timestamp, and keeps the last ones of each partition."""

    store: ManifestStore
    cluster_id: Callable[[], str]
    connection_epoch: Callable[[], int]

    def __post_init__(self) -> None:
        self._epoch = 0
        self._known: OrderedDict[tuple[str, int], tuple[KnownSegment, ...]] = OrderedDict()

    def cached(self, topic: Topic, partition: int, offset: int) -> KnownSegment | None:
        """Return the segment with the offset if it was looked up before."""
        for each in self._of(topic, partition):
            if each.row.first <= offset <= each.row.last:
                return each
        return None

    def forget(self, topic: Topic, partition: int) -> None:
        """Look up the partition's segments again."""
        self._known.pop((topic.id, partition), None)

    async def find(self, topic: Topic, partition: int, offset: int) -> KnownSegment | None:
        """Return the segment with the offset, or the next one; None if there is none."""
        found = self.cached(topic, partition, offset)
        if found is not None:
            return found
        key, known, epoch = (topic.id, partition), self._of(topic, partition), self._epoch
        row = await find_segment(self.store, topic.partition(partition), offset)
        if row is None:
            return None
        found = KnownSegment(row, row.object_name(self.cluster_id(), *key))
        if epoch != self.connection_epoch():
            return found
        self._known[key] = (found, *known[: MAX_EACH - 1])
        self._known.move_to_end(key)
        if len(self._known) > MAX_PARTITIONS:
            self._known.popitem(last=False)
        return found

    async def find_timestamp(
        self, topic: Topic, partition: int, timestamp: int | None
    ) -> tuple[int, KnownSegment] | None:
        """Return the segment with the first record at or after a timestamp, and its timestamp.

        None as timestamp: with the newest record.
        """
        reply = await self.store.run(
            topic.partition(partition).find_segment(
                timestamp=NEWEST if timestamp is None else timestamp
            )
        )
        if not reply.row:
            return None
        row = SegmentRow.parse(reply.row)
        name = row.object_name(self.cluster_id(), topic.id, partition)
        return reply.timestamp, KnownSegment(row, name)

    def _of(self, topic: Topic, partition: int) -> tuple[KnownSegment, ...]:
        """Return the partition's known segments; forget all those of another connection."""
        epoch = self.connection_epoch()
        if epoch != self._epoch:
            self._epoch = epoch
            self._known.clear()
        return self._known.get((topic.id, partition), ())
