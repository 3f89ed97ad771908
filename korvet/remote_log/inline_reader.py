"""Read segments without an event loop, for the library's synchronous calls.

Its coroutines never suspend: the store is read in the calling thread, without read-ahead.
"""

from korvet.remote_log.chunk_cache import block_of, chunks_of
from korvet.remote_log.local_chunks import verified
from korvet.remote_log.store import SegmentStore
from korvet.wire.segments import Segment


class InlineSegmentStore(SegmentStore):
    """A store of segments whose reads block the calling thread."""

    async def get(self, name: str, start: int, end: int) -> memoryview:
        """Return the object's bytes from `start` to below `end`."""
        return self.get_blocking(name, start, end)


class InlineChunks:
    """Reads chunks of an InlineSegmentStore, a block at a time; the last block is kept."""

    lets_others_run = False
    serves_copies = False

    def __init__(self, store: SegmentStore) -> None:
        self._store = store
        self._block: tuple[tuple[str, int], memoryview] | None = None

    def limit(self, segment: Segment, chunk: int) -> int:
        """Return the chunk after the last one of the chunk's block."""
        return chunks_of(segment, block_of(segment, chunk))[1]

    def read_ahead(self, name: str, segment: Segment, first: int, after: int) -> None:
        """Do nothing: blocks are read ahead, or not at all."""

    def read_now(self, name: str, segment: Segment, first: int, after: int) -> None:
        """Return None: a read may have to wait."""

    async def read(self, name: str, segment: Segment, first: int, after: int) -> memoryview:
        """Return the verified bytes of chunks of one block."""
        key = (name, block_of(segment, first))
        begin, following = chunks_of(segment, key[1])
        start = segment.rows.positions[begin]
        if self._block is None or self._block[0] != key:
            data = await self._store.get(name, start, segment.end_of(following - 1))
            self._block = key, verified(name, segment, begin, data)
        data = self._block[1]
        return data[segment.rows.positions[first] - start : segment.end_of(after - 1) - start]
