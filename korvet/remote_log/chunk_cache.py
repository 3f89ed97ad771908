"""Verified chunks of segments: read from a local directory, or through a cache.

A block of an object store is read once for all its readers, verified, and cached in memory. Of a
local directory nothing is cached but in the page cache. A thread reads chunks before the sequential
readers that ask for them next. Reading and verifying 1 MB takes a third of a fetch. The interpreter
lock is free meanwhile, and also while a large response is written: on two cores both happen at the
same time.

Rules of reading ahead
- What is not read when its reader asks for it, is corrupt or is outside the page cache is dropped:
  the reader reads it as without reading ahead, and reports the error if there is one.
- One event loop asks and takes; it also owns the buffers. The thread ends when it has no work.
"""

import asyncio
from collections import OrderedDict
from queue import Empty, SimpleQueue
from threading import Thread

import msgspec

from korvet.remote_log import local_files
from korvet.remote_log.store import RemoteStorageError, SegmentStore
from korvet.store.async_store import ignore_result
from korvet.wire.segments import CorruptSegment, Segment

MAX_BYTES = 16 << 20
"""Bytes that are read ahead and not asked for yet; the oldest are dropped."""
IDLE_S = 5.0


class Chunks(msgspec.Struct):
    """Chunks from `first` to below `after` that are read; `data` is set once they are verified."""

    path: str
    segment: Segment
    first: int
    after: int
    buffer: memoryview
    data: memoryview | None = None

    def read(self) -> None:
        """Read and verify the chunks; leave `data` unset if that fails."""
        start = self.segment.rows.positions[self.first]
        if not local_files.read_page_cache(self.path, self.buffer, start):
            return
        try:
            self.segment.verify(self.first, self.buffer)
        except CorruptSegment:
            return
        self.data = self.buffer.toreadonly()


class ReadAhead:
    """Up to MAX_BYTES of chunks that are read ahead."""

    def __init__(self) -> None:
        self.hits = 0
        self._asked: OrderedDict[tuple[str, int], Chunks] = OrderedDict()
        self._size = 0
        self._work: SimpleQueue[Chunks] = SimpleQueue()
        self._thread: Thread | None = None

    def ask(self, chunks: Chunks) -> None:
        """Let the thread read the chunks."""
        self._drop(chunks.path, chunks.first)
        while self._asked and self._size + len(chunks.buffer) > MAX_BYTES:
            self._drop(*next(iter(self._asked)))
        self._asked[chunks.path, chunks.first] = chunks
        self._size += len(chunks.buffer)
        self._work.put(chunks)
        if self._thread is None:
            self._thread = Thread(target=self._run, name="korvet-read-ahead", daemon=True)
            self._thread.start()

    def take(self, path: str, first: int, after: int) -> memoryview | None:
        """Return exactly these chunks if they are read."""
        chunks = self._drop(path, first)
        if chunks is None or chunks.after != after or chunks.data is None:
            return None
        self.hits += 1
        return chunks.data

    def _drop(self, path: str, first: int) -> Chunks | None:
        chunks = self._asked.pop((path, first), None)
        if chunks is not None:
            self._size -= len(chunks.buffer)
        return chunks

    def _run(self) -> None:
        while True:
            try:
                self._work.get(timeout=IDLE_S).read()
            except Empty:
                break
        # What was put before this line is read below; what comes later starts another thread.
        self._thread = None
        while not self._work.empty():
            try:
                self._work.get_nowait().read()
            except Empty:
                return


PART_BYTES = 1 << 20
"""Bytes of a read, unless one chunk is larger: other tasks run between two of them."""


class LocalChunks:
    """Reads chunks of files, as many at a time as a fetch needs."""

    lets_others_run = True

    def __init__(self, store: SegmentStore) -> None:
        self._store = store
        self._ahead = ReadAhead()

    @property
    def hits(self) -> int:
        """Reads that the page cache had all bytes of."""
        found = self._store.files.hits if self._store.files is not None else 0
        return found + self._ahead.hits

    @property
    def misses(self) -> int:
        """Reads that waited for the disk."""
        return self._store.files.misses if self._store.files is not None else 0

    @property
    def serves_copies(self) -> bool:
        """Return whether a read costs less than one from Redis, and no limit delays it."""
        return not self._store.is_limited

    def limit(self, segment: Segment, chunk: int) -> int:
        """Return the chunk after the last one that a read from `chunk` on can return."""
        return segment.chunks_within(chunk, PART_BYTES)

    async def read(self, name: str, segment: Segment, first: int, after: int) -> memoryview:
        """Return the verified bytes of the chunks from `first` to below `after`."""
        begin, end = segment.rows.positions[first], segment.end_of(after - 1)
        return verified(name, segment, first, await self._store.get(name, begin, end))

    def read_now(self, name: str, segment: Segment, first: int, after: int) -> memoryview | None:
        """Return what `read` returns if it has not to wait, else None."""
        ready = self._ahead.take(self._store.path_of(name), first, after)
        if ready is not None:
            return ready
        begin, end = segment.rows.positions[first], segment.end_of(after - 1)
        data = self._store.get_now(name, begin, end)
        return None if data is None else verified(name, segment, first, data)

    def read_ahead(self, name: str, segment: Segment, first: int, after: int) -> None:
        """Let a thread read and verify chunks that a reader will ask for next."""
        begin, end = segment.rows.positions[first], segment.end_of(after - 1)
        buffer = self._store.lend_ahead(name, begin, end)
        if buffer is not None:
            self._ahead.ask(Chunks(self._store.path_of(name), segment, first, after, buffer))


def verified(name: str, segment: Segment, first: int, data: memoryview) -> memoryview:
    """Return the bytes of chunks from number `first` on. Raises RemoteStorageError if they differ.

    The caller's log line names topic, partition and offset; the error has the chunk's offsets.
    """
    try:
        segment.verify(first, data)
    except CorruptSegment as error:
        raise RemoteStorageError(f"{name}: {error}") from None
    return data


BLOCK_BYTES = 1 << 20
"""Bytes of a range read: the chunks that begin within them."""
MAX_AHEAD = 8
"""Blocks that are read ahead of a sequential reader: a request to an object store takes long."""
MAX_READERS = 1000
"""Sequential readers that are known."""


class ChunkCache:
    """Up to `capacity` bytes of blocks of an object store, least recently used first out."""

    lets_others_run = False
    """Whether other tasks run between the reads of a fetch, which may not wait."""
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
