"""Read segments without an event loop, for the library's synchronous calls.

Its coroutines never suspend: the store is read in the calling thread, without read-ahead.
"""

from korvet.remote_log.chunk_cache import block_of, chunks_of
from korvet.remote_log.reader import RemoteLogReader
from korvet.remote_log.store import SegmentStore
from korvet.wire.segments import Segment, find_batches


class InlineSegmentStore(SegmentStore):
    """A store of segments whose reads block the calling thread."""

    async def get(self, name: str, start: int, end: int) -> memoryview:
        """Return the object's bytes from `start` to below `end`."""
        return self.get_blocking(name, start, end)


class InlineLogReader(RemoteLogReader):
    """Reads segments of an InlineSegmentStore, a block at a time; the last block is kept."""

    _block: tuple[tuple[str, int], memoryview] | None = None

    async def _slices(
        self, name: str, segment: Segment, offset: int, max_bytes: int
    ) -> tuple[list[memoryview], int]:
        chunk = segment.chunk_of(offset)
        while True:
            block = block_of(segment, chunk)
            first, next_chunk = chunks_of(segment, block)
            key = (name, block)
            if self._block is None or self._block[0] != key:
                self._block = key, await self._cache.read(name, segment, block)
            data = self._block[1]
            at = segment.positions[max(chunk, first)] - segment.positions[first]
            begin, end, after = find_batches(data, at, offset, max_bytes)
            if begin < end:
                return [data[begin:end]], after
            if next_chunk >= len(segment.rows):
                return [], -1
            chunk = next_chunk
