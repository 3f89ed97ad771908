"""Take batches out of a segment, chunk by chunk, as many as fit a fetch.

Whole chunks are sent as they are: their batches are looked at only where an offset, or the limit in
bytes, is inside a chunk.
"""

import asyncio
from typing import NamedTuple, Protocol

from korvet.wire.batch_runs import count_records, find_batches, skip_batches
from korvet.wire.segments import Segment


class Slices(NamedTuple):
    """Consecutive batches of a segment; none if all of it is below the requested offset."""

    parts: list[memoryview]
    after: int
    """An offset above theirs, at or below the next batch's."""
    records: int


class ChunkSource(Protocol):
    """Reads verified chunks of segments."""

    @property
    def lets_others_run(self) -> bool:
        """Return whether other tasks run between the reads of a fetch, which may not wait."""

    @property
    def serves_copies(self) -> bool:
        """Return whether a read costs less than one from Redis, and no limit delays it."""

    def limit(self, segment: Segment, chunk: int) -> int:
        """Return the chunk after the last one that a read from `chunk` on can return."""

    def read_ahead(self, name: str, segment: Segment, first: int, after: int) -> None:
        """Prepare what a reader will ask `read_now` for next."""

    def read_now(self, name: str, segment: Segment, first: int, after: int) -> memoryview | None:
        """Return what `read` returns if it has not to wait, else None."""

    async def read(self, name: str, segment: Segment, first: int, after: int) -> memoryview:
        """Return the bytes of the chunks from `first` to below `after`, within that limit.

        Raises RemoteStorageError.
        """


async def read_slices(
    source: ChunkSource, name: str, segment: Segment, offset: int, max_bytes: int
) -> Slices:
    """Return the batches from the one with the offset on.

    They fit max_bytes, or are one batch. Three quarters of max_bytes are enough if the next chunk
    would have to be cut.
    """
    parts: list[memoryview] = []
    rows = segment.rows
    chunk, after, count, room = rows.at_offset(offset), -1, 0, max(max_bytes, 0)
    while chunk < len(rows):
        stop = segment.chunks_within(chunk, room)
        if parts and 4 * room < max_bytes and segment.end_of(chunk) - rows.positions[chunk] > room:
            break
        stop = min(stop, source.limit(segment, chunk))
        if parts and source.lets_others_run:
            await asyncio.sleep(0)
        data = await source.read(name, segment, chunk, stop)
        begin = skip_batches(data, offset) if offset > rows.offsets[chunk] else 0
        size, reached = len(data) - begin, segment.offset_after(stop - 1)
        if size > room:
            begin, end, after_cut = find_batches(data, begin, offset, room)
            if not parts or end - begin <= room:
                parts.append(data[begin:end])
                after, count = after_cut, count + count_records(parts[-1])
            break
        if size:
            parts.append(data[begin:] if begin else data)
            room, after = room - size, reached
            count += count_records(parts[-1]) if begin else sum(rows.records[chunk:stop])
        if room <= 0:
            break
        chunk = stop
    return Slices(parts, after, count)
