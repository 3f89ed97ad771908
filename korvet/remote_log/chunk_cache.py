"""Blocks of segments in memory: each is read once for all its readers, verified, and cached."""

import asyncio
from bisect import bisect_left
from collections import OrderedDict

from korvet.remote_log.manifest import checked_footer
from korvet.remote_log.store import RemoteStorageError, SegmentStore
from korvet.wire.segments import CorruptSegment, Segment

BLOCK_BYTES = 1 << 20
"""Bytes of a range read: the chunks that begin within them."""
MAX_FOOTERS = 1000


class ChunkCache:
    """Footers and up to `capacity` bytes of blocks, least recently used first out."""

    def __init__(self, store: SegmentStore, capacity: int) -> None:
        self.store = store
        self.hits = self.misses = 0
        self._capacity = capacity
        self._size = 0
        self._blocks: OrderedDict[tuple[str, int], memoryview] = OrderedDict()
        self._footers: OrderedDict[str, Segment] = OrderedDict()
        self._pending: dict[tuple[str, int], asyncio.Task[memoryview]] = {}

    async def footer(self, name: str, begin: int, end: int) -> Segment:
        """Return the footer of an object, which has it at these positions."""
        found = self._footers.get(name)
        if found is None:
            found = checked_footer(name, await self.store.get(name, begin, end))
            self._footers[name] = found
            if len(self._footers) > MAX_FOOTERS:
                self._footers.popitem(last=False)
        return found

    def load(self, name: str, segment: Segment, block: int) -> "asyncio.Future[memoryview]":
        """Return the verified bytes of a block's chunks; concurrent calls share one read."""
        key = (name, block)
        cached = self._blocks.get(key)
        if cached is not None:
            self.hits += 1
            self._blocks.move_to_end(key)
            done = asyncio.get_running_loop().create_future()
            done.set_result(cached)
            return done
        task = self._pending.get(key)
        if task is None:
            self.misses += 1
            task = asyncio.create_task(self.read(name, segment, block))
            self._pending[key] = task
            task.add_done_callback(lambda done: self._finished(key, done))
        return task

    async def read(self, name: str, segment: Segment, block: int) -> memoryview:
        """Return the verified bytes of a block's chunks from the store."""
        first, after = chunks_of(segment, block)
        begin, end = segment.rows[first].position, segment.end_of(after - 1)
        data = await self.store.get(name, begin, end)
        try:
            segment.verify(first, data)
        except CorruptSegment as error:
            raise RemoteStorageError(f"{name}: {error}") from None
        return data

    def _finished(self, key: tuple[str, int], task: "asyncio.Task[memoryview]") -> None:
        del self._pending[key]
        if task.cancelled() or task.exception() is not None:
            return
        self._blocks[key] = task.result()
        self._size += len(task.result())
        while self._size > self._capacity and len(self._blocks) > 1:
            _, dropped = self._blocks.popitem(last=False)
            self._size -= len(dropped)


def block_of(segment: Segment, chunk: int) -> int:
    """Return the block that a chunk belongs to."""
    return segment.rows[chunk].position // BLOCK_BYTES


def chunks_of(segment: Segment, block: int) -> tuple[int, int]:
    """Return the first chunk of a block and the one after its last."""
    first = bisect_left(segment.positions, block * BLOCK_BYTES)
    return first, bisect_left(segment.positions, (block + 1) * BLOCK_BYTES, first)
