"""Verified chunks of segments in a local directory; nothing is cached but in the page cache.

A thread reads chunks before the sequential readers that ask for them next. Reading and verifying
1 MB takes a third of a fetch. The interpreter lock is free meanwhile, and also while a large
response is written: on two cores both happen at the same time.

Rules
- What is not read when its reader asks for it, is corrupt or is outside the page cache is dropped:
  the reader reads it as without this module, and reports the error if there is one.
- One event loop asks and takes; it also owns the buffers. The thread ends when it has no work.
"""

from collections import OrderedDict
from queue import Empty, SimpleQueue
from threading import Thread

import msgspec

from korvet.remote_log import local_files
from korvet.remote_log.store import RemoteStorageError, SegmentStore
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
