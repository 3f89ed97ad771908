"""Cache for the reads of one process: sizes of entries, and stored batches.

Rules
- A stored batch never changes and never moves: (topic id, partition, offset) identifies it on one
  Redis server. Another server may lack the last ones: they are dropped after a reconnection.
- Each fetch asks Redis for the log's state all the same: topic and log start decide whether a
  batch may still be read.
- The key is the offset a consumer asks for: the end of the batch below it. That no batch
  is between the two must be known, from one XRANGE or from the append's own reply.
- The batches have at most `capacity` bytes. The least recently used one is dropped first.
"""

import struct
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import cast

from korvet.base import logfmt
from korvet.log.batch_reply import Batches
from korvet.log.entry import Entry, OffsetMap
from korvet.log.layouts import layout_of
from korvet.log.recent_states import RecentState
from korvet.log.size_estimates import SizeEstimates
from korvet.scripts.append_call import count_of, newest_of, whole_batch
from korvet.scripts.call import Call
from korvet.scripts.calls.partition import AppendReply
from korvet.topics.table import Topic
from korvet.wire.records import MAX_TIMESTAMP_AT

LARGE = 16 * 1024
"""Bytes of a batch from which on a read from Redis costs little more than one from the cache."""
TAIL_SHARE = 16
"""The part of the cache's bytes that is the end of a log: all its batches are cached."""
MAX_READ = 20_000
"""Reads of large batches that are noted: by the first batch of a range, or by each batch."""
MAX_MAPS = 1000
"""Logs with ids that are not natural whose maps are kept: 40 KB each, and seldom more."""
_INT64 = struct.Struct(">q")
logger = logfmt.get("log.reader")
ReadKey = tuple[str, int, int]
OVERHEAD = 512
"""Estimated bytes per cached batch, in addition to the batch."""


class BatchCache:
    """Batches by the offset that reads them."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.size = 0
        self._batches: OrderedDict[ReadKey, Entry] = OrderedDict()

    def __len__(self) -> int:
        return len(self._batches)

    def put(self, topic_id: str, partition: int, offset: int, batch: Entry) -> None:
        """Store the batch that a read from `offset` finds first."""
        cost = batch.size + OVERHEAD
        if cost > self.capacity >> 2:
            return
        position = (topic_id, partition, offset)
        old = self._batches.pop(position, None)
        if old is not None:
            self.size -= old.size + OVERHEAD
        self._batches[position] = batch
        self.size += cost
        while self.size > self.capacity:
            _, dropped = self._batches.popitem(last=False)
            self.size -= dropped.size + OVERHEAD

    def has(self, topic_id: str, partition: int, offset: int) -> bool:
        """Return whether the batch that a read from `offset` finds first is cached."""
        return (topic_id, partition, offset) in self._batches

    def drop(self, topic_id: str, partition: int, first: int, last: int) -> None:
        """Drop the batches from `first` on without a gap, as far as they end by `last`."""
        position = (topic_id, partition, first)
        while (batch := self._batches.get(position)) is not None and batch.last <= last:
            del self._batches[position]
            self.size -= batch.size + OVERHEAD
            position = (topic_id, partition, batch.last + 1)

    def clear(self) -> None:
        """Drop every batch."""
        self._batches.clear()
        self.size = 0

    def run(
        self, topic_id: str, partition: int, offset: int, max_bytes: int, *, uses: bool = True
    ) -> list[Entry]:
        """Return the cached batches from `offset` on, without a gap, up to `max_bytes`.

        The first is returned whatever its size. They count as used unless `uses` is False.
        """
        found: list[Entry] = []
        size = 0
        batches = self._batches
        while True:
            position = (topic_id, partition, offset)
            batch = batches.get(position)
            if batch is None:
                return found
            size += batch.size
            if found and size > max_bytes:
                return found
            if uses:
                batches.move_to_end(position)
            found.append(batch)
            offset = batch.last + 1


class ReadCache:
    """Sizes and up to `cache_bytes` of batches, valid while `connection_epoch` does not change.

    After a reconnection another server may have less.
    """

    def __init__(self, cache_bytes: int, connection_epoch: Callable[[], int]) -> None:
        self.sizes = SizeEstimates()
        self.skipped_entries = 0
        """Foreign entries without an offset or without records, since the process started."""
        self.hits = self.misses = 0
        """Reads that found a batch, and those that found none, since the process started."""
        self.catch_up_bytes = 0
        """Bytes of large batches below a log's end that were read from Redis, since then."""
        self._batches = BatchCache(cache_bytes)
        self._read: dict[tuple[str, int, int], None] = {}
        self.connection_epoch = connection_epoch
        self._epoch = 0
        self._skip_logged: set[tuple[str, int]] = set()
        self._maps: dict[tuple[str, int], OffsetMap] = {}
        """Of logs with ids that are not natural."""
        self._natural: dict[tuple[str, int], OffsetMap] = {}
        """By offset mode and bits."""

    def is_valid(self) -> bool:
        """Return whether the store still uses the connection that filled the cache."""
        return self.connection_epoch() == self._epoch

    def batches_from(
        self, topic: Topic, partition: int, offset: int, max_bytes: int
    ) -> list[Entry]:
        """Return the cached batches from the offset on; drop those of another connection."""
        self._drop_invalid()
        found = self._batches.run(topic.id, partition, offset, max_bytes)
        if found:
            self.hits += 1
        else:
            self.misses += 1
        return found

    def _drop_invalid(self) -> None:
        """Drop the batches of another connection."""
        if not self.is_valid():
            self._epoch = self.connection_epoch()
            self._batches.clear()

    @property
    def held_bytes(self) -> int:
        """Memory of the cached batches."""
        return self._batches.size

    def learn_entries(
        self, topic: Topic, partition: int, offset: int, entries: Sequence[Entry], end: int
    ) -> None:
        """Store the size of entries just read from `offset` on, and cache batches.

        Large batches far below the end are cached when they are read for the second time: a single
        reader that catches up needs no cache, and to fill it costs a third of its reads.
        """
        if not entries:
            return
        size, last = sum(entry.size for entry in entries), entries[-1].last
        density = size / max(1, last + 1 - entries[0].first)
        self.sizes.note_read(topic, partition, last + 1, size / len(entries), density)
        if not self._batches.capacity or not layout_of(topic).holds_batches:
            return
        is_tail = (end - last - 1) * density <= self._tail_bytes
        for entry in entries:
            if is_tail or entry.size < LARGE or self._was_read(topic.id, partition, offset):
                self._batches.put(topic.id, partition, offset, entry)
            offset = entry.last + 1

    def is_catch_up(self, topic: Topic, partition: int, offset: int, max_bytes: int) -> bool:
        """Return whether `max_bytes` of large batches are expected that are not cached."""
        sizes = self.sizes
        return (
            sizes.average(topic, partition, offset) >= LARGE
            and sizes.bytes_behind(topic, partition, offset) > max_bytes
            and not self._batches.has(topic.id, partition, offset)
        )

    def is_copy_read(self, topic: Topic, partition: int, offset: int, max_bytes: int) -> bool:
        """Return whether a segment is to serve records that Redis may have too.

        They are copied, far below the end, and not cached.
        """
        sizes = self.sizes
        return (
            sizes.is_copied(topic, partition, offset)
            and topic.policy.prefers_segments
            and not topic.policy.compact
            and sizes.bytes_behind(topic, partition, offset) - max_bytes > self._tail_bytes
            and not self._batches.has(topic.id, partition, offset)
        )

    def learn_state(self, topic: Topic, partition: int, state: RecentState) -> None:
        """Store the sizes in a log's state."""
        count, largest = (int(text or 0) for text in state.fields[5:7])
        average = state.appended / max(count, 1)
        self.sizes.learn(topic, partition, average, largest, state.end, state.stable)
        self.sizes.learn_copied(topic, partition, state.copied)
        if state.local_start:
            self.sizes.learn_local_start(topic, partition, state.local_start)

        self._learn_shifts(topic, partition, state.shifts)

    def _learn_shifts(self, topic: Topic, partition: int, shifts: bytes | None) -> None:
        key = (topic.id, partition)
        known = self._maps.get(key)
        if not shifts:
            if known is not None:
                del self._maps[key]
        elif known is None or known.shifts != shifts:
            policy = topic.policy
            self._maps[key] = OffsetMap(policy.offset_mode, policy.offset_bits, shifts)
            if len(self._maps) > MAX_MAPS:
                del self._maps[next(iter(self._maps))]

    def offset_map(self, topic: Topic, partition: int) -> OffsetMap:
        """Return the map of the log, as of the state that was read last."""
        found = self._maps.get((topic.id, partition))
        if found is None:
            kind = topic.policy.offset_mode, topic.policy.offset_bits
            found = self._natural.get(kind)
            if found is None:
                found = self._natural[kind] = OffsetMap(*kind)
        return found

    def learn_range(self, topic: Topic, partition: int, batches: Batches, end: int) -> None:
        """Store the size of large batches that were just read, and cache them as `learn_entries`.

        What is cached is copied: their buffer is used again.
        """
        size, following = batches.size, batches.next
        self.catch_up_bytes += size
        density = size / (following - batches.first)
        self.sizes.note_read(topic, partition, following, size / len(batches.parts), density)
        if not self._batches.capacity:
            return
        offsets = batches.offsets
        places = [(topic.id, partition, offset) for offset in offsets]
        was_read = not self._read.keys().isdisjoint(places)
        self._note_read(places[0])
        if not was_read and (end - following) * density > self._tail_bytes:
            return
        for offset, after, part in zip(
            offsets, [*offsets[1:], following], batches.parts, strict=True
        ):
            self._batches.put(topic.id, partition, offset, _entry_of(part, after))

    @property
    def _tail_bytes(self) -> int:
        """Bytes from a log's end within which all batches are cached."""
        return self._batches.capacity // TAIL_SHARE

    def _was_read(self, topic_id: str, partition: int, offset: int) -> bool:
        """Return whether the batch at the offset was read before, and note that it is now."""
        position = topic_id, partition, offset
        if position in self._read:
            return True
        self._note_read(position)
        return False

    def _note_read(self, position: tuple[str, int, int]) -> None:
        """Note that the batch at the offset was read."""
        self._read[position] = None
        if len(self._read) > MAX_READ:
            del self._read[next(iter(self._read))]

    @property
    def capacity(self) -> int:
        """Memory that cached batches may take."""
        return self._batches.capacity

    def has(self, topic: Topic, partition: int, offset: int) -> bool:
        """Return whether the batch that a read from the offset finds first is cached."""
        return self.is_valid() and self._batches.has(topic.id, partition, offset)

    def peek(self, topic: Topic, partition: int, offset: int, max_bytes: int) -> list[Entry]:
        """Return the cached batches from the offset on, for a reader that is no consumer."""
        if not self.is_valid():
            return []
        return self._batches.run(topic.id, partition, offset, max_bytes, uses=False)

    def drop_unread(self, topic: Topic, partition: int, first: int, last: int) -> None:
        """Drop the batches of these offsets if this process does not read the partition."""
        if self.sizes.get(topic, partition) is None:
            self._batches.drop(topic.id, partition, first, last)

    def add_append(
        self,
        topic: Topic,
        partition: int,
        previous: int,
        base: int,
        call: Call[AppendReply],
        *,
        is_wanted: bool = False,
    ) -> None:
        """Cache a batch appended after offset `previous`.

        Only if this process reads the partition, or else if it is wanted for a copy.
        """
        if not self._batches.capacity:
            return
        if not is_wanted and self.sizes.get(topic, partition) is None:
            return
        batch = whole_batch(call)
        if batch is None:
            return
        self._drop_invalid()
        if isinstance(batch, memoryview) and len(batch.obj) > 2 * len(batch):  # type: ignore[arg-type]
            batch = bytes(batch)  # a slice would keep the whole frame in memory
        entry = _entry(base, count_of(call), cast(bytes, batch), newest_of(call))
        self._batches.put(topic.id, partition, previous, entry)

    def skip(self, topic: Topic, partition: int, raw_id: bytes, size: int = 0) -> None:
        """Count a foreign entry that no consumer can read; log the first of each partition.

        `size`: the entry's bytes, if it has too many.
        """
        self.skipped_entries += 1
        if size:
            logger.warning_again(
                "foreign entry skipped: larger than clients take",
                topic=topic.name,
                partition=partition,
                entry=raw_id.decode(),
                bytes=size,
                advice="XDEL it, or raise max.message.bytes above its size",
            )
        elif (topic.id, partition) not in self._skip_logged:
            self._skip_logged.add((topic.id, partition))
            logger.warning(
                "foreign entries skipped: no offset, or no records",
                topic=topic.name,
                partition=partition,
                entry=raw_id.decode(),
                advice="`korvet topics repair` counts those without an offset, and deletes them",
            )


def _entry_of(batch: memoryview, after: int) -> Entry:
    """Return the entry of a stored batch at its offset; `after` is the offset after it."""
    (base,) = _INT64.unpack_from(batch, 0)
    return _entry(base, after - base, bytes(batch), _INT64.unpack_from(batch, MAX_TIMESTAMP_AT)[0])


def _entry(base: int, count: int, batch: bytes, newest: int) -> Entry:
    fields = [b"batch", batch, b"count", b"%d" % count, b"max.timestamp", b"%d" % newest]
    return Entry(base, base + count - 1, fields, 0, sum(map(len, fields)))
