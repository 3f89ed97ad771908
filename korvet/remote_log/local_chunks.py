"""Verified chunks of segments in a local directory; nothing is cached but in the page cache."""

from korvet.remote_log.read_ahead import Chunks, ReadAhead
from korvet.remote_log.store import RemoteStorageError, SegmentStore
from korvet.wire.segments import CorruptSegment, Segment

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
