"""Blocks of segments in memory: each is read once for all its readers, verified, and cached."""

import asyncio
from collections import OrderedDict

from korvet.remote_log.local_chunks import LocalChunks, verified
from korvet.remote_log.store import RemoteStorageError, SegmentStore
from korvet.store.async_store import ignore_result
from korvet.wire.segments import Segment

BLOCK_BYTES = 1 << 20
"""Bytes of a range read: the chunks that begin within them."""
MAX_AHEAD = 8
"""Blocks that are read ahead of a sequential reader: a request to an object store takes long."""
MAX_READERS = 1000
"""Sequential readers that are known."""


class ChunkCache:
    """Up to `capacity` bytes of blocks of an object store, least recently used first out."""

    lets_others_run = False
    serves_copies = False

    def __init__(self, store: SegmentStore, capacity: int) -> None:
        self.hits = self.misses = 0
        self._store = store
        self._capacity = capacity
        self._size = 0
        self._readers: OrderedDict[tuple[str, int], int] = OrderedDict()
        """How far was read ahead, by the block that a sequential reader reads next."""
        self._blocks: OrderedDict[tuple[str, int], memoryview] = OrderedDict()
        self._pending: dict[tuple[str, int], asyncio.Task[memoryview]] = {}

    def limit(self, segment: Segment, chunk: int) -> int:
        """Return the chunk after the last one of the chunk's block."""
        return chunks_of(segment, block_of(segment, chunk))[1]

    def read_ahead(self, name: str, segment: Segment, first: int, after: int) -> None:
        """Do nothing: blocks are read ahead, or not at all."""

    def read_now(self, name: str, segment: Segment, first: int, after: int) -> None:
        """Return None: a read may have to wait."""

    async def read(self, name: str, segment: Segment, first: int, after: int) -> memoryview:
        """Return the verified bytes of chunks of one block; read the next blocks ahead."""
        block = block_of(segment, first)
        # Shielded by its task: other readers wait for it, and the cache keeps it.
        loading = asyncio.shield(self._load(name, segment, block))
        begin, following = chunks_of(segment, block)
        if following < len(segment.rows):
            self._read_ahead(name, segment, block, following)
        data, start = await loading, segment.rows.positions[begin]
        return data[segment.rows.positions[first] - start : segment.end_of(after - 1) - start]

    def _read_ahead(self, name: str, segment: Segment, block: int, following: int) -> None:
        """Load the blocks from chunk `following` on: twice as many for each block of a reader.

        One only while the loads in progress fill a quarter of the cache.
        """
        after = (name, block_of(segment, following))
        known = self._readers.pop((name, block), 0)
        # Without it, but with the next one: a further read of this block.
        ahead = min(2 * known, MAX_AHEAD) or self._readers.get(after, 1)
        self._readers[after] = ahead
        if len(self._readers) > MAX_READERS:
            self._readers.popitem(last=False)
        for count in range(ahead):
            is_full = count and len(self._pending) * BLOCK_BYTES >= self._capacity // 4
            if following >= len(segment.rows) or is_full:
                return
            each = block_of(segment, following)
            if (name, each) not in self._blocks:
                ignore_result(self._load(name, segment, each))
            following = chunks_of(segment, each)[1]

    def _load(self, name: str, segment: Segment, block: int) -> "asyncio.Future[memoryview]":
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
            task = asyncio.create_task(self._read_block(name, segment, block))
            self._pending[key] = task
            task.add_done_callback(lambda done: self._finished(key, done))
        return task

    async def _read_block(self, name: str, segment: Segment, block: int) -> memoryview:
        first, after = chunks_of(segment, block)
        begin, end = segment.rows.positions[first], segment.end_of(after - 1)
        try:
            return verified(name, segment, first, await self._store.get(name, begin, end))
        except RemoteStorageError:
            await self._store.forget(name)
            raise

    def _finished(self, key: tuple[str, int], task: "asyncio.Task[memoryview]") -> None:
        del self._pending[key]
        if task.cancelled() or task.exception() is not None:
            return
        self._blocks[key] = task.result()
        self._size += len(task.result())
        while self._size > self._capacity and len(self._blocks) > 1:
            _, dropped = self._blocks.popitem(last=False)
            self._size -= len(dropped)


def chunk_source(store: SegmentStore, capacity: int) -> "ChunkCache | LocalChunks":
    """Return the reader of the store's chunks, with a cache of `capacity` bytes if it needs one."""
    return LocalChunks(store) if store.files is not None else ChunkCache(store, capacity)


def block_of(segment: Segment, chunk: int) -> int:
    """Return the block that a chunk belongs to."""
    position: int = segment.rows.positions[chunk]
    return position // BLOCK_BYTES


def chunks_of(segment: Segment, block: int) -> tuple[int, int]:
    """Return the first chunk of a block and the one after its last."""
    first = segment.rows.at_position(block * BLOCK_BYTES)
    return first, segment.rows.at_position((block + 1) * BLOCK_BYTES, first)


class InlineSegmentStore(SegmentStore):
    """A store of segments whose reads block the calling thread."""

    async def get(self, name: str, start: int, end: int) -> memoryview:
        """Return the object's bytes from `start` to below `end`."""
        return self.get_blocking(name, start, end)


class InlineChunks(ChunkCache):
    """Reads chunks of an InlineSegmentStore, a block at a time; the last block is kept.

    For calls without an event loop: its coroutines never suspend, and nothing is read ahead.
    """

    def __init__(self, store: SegmentStore) -> None:
        super().__init__(store, 0)
        self._block: tuple[tuple[str, int], memoryview] | None = None

    async def read(self, name: str, segment: Segment, first: int, after: int) -> memoryview:
        """Return the verified bytes of chunks of one block."""
        key = (name, block_of(segment, first))
        if self._block is None or self._block[0] != key:
            self._block = key, await self._read_block(name, segment, key[1])
        start = segment.rows.positions[chunks_of(segment, key[1])[0]]
        data = self._block[1]
        return data[segment.rows.positions[first] - start : segment.end_of(after - 1) - start]
