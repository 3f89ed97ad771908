"""Check that blocks of an object store are read ahead of sequential readers, and only of those."""

import asyncio
from typing import Any, cast

from anyio.lowlevel import checkpoint

from korvet.remote_log.chunk_cache import BLOCK_BYTES, MAX_AHEAD, ChunkCache, chunks_of
from korvet.remote_log.store import SegmentStore
from korvet.wire.segments import Segment, read_segment
from tests.remote_log.test_slices import written

DATA = written(300)
SEGMENT = read_segment(DATA)[0]
BLOCKS = SEGMENT.header.bytes // BLOCK_BYTES


class Store:
    """A store that replies when the test lets it, and records the requested blocks."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def get(self, name: str, start: int, end: int) -> memoryview:
        self.asked.append(SEGMENT.rows.at_position(start))
        await self.may_answer.wait()
        return memoryview(DATA)[start:end]


async def read(cache: ChunkCache, block: int, segment: Segment = SEGMENT) -> None:
    """Read the first chunk of a block, and let what is read ahead begin."""
    first, _ = chunks_of(segment, block)
    assert await cache.read("a", segment, first, first + 1)
    await checkpoint()


def made(capacity: int = 1 << 30) -> tuple[Store, ChunkCache]:
    store: Any = Store()
    return store, ChunkCache(cast(SegmentStore, store), capacity)


async def test_more_is_read_ahead_for_each_block_of_a_sequential_reader() -> None:
    store, cache = made()
    ahead = []
    for block in range(8):
        await read(cache, block)
        await read(cache, block)
        ahead.append(len(store.asked) - block - 1)
    assert ahead[:5] == [1, 2, 4, MAX_AHEAD, MAX_AHEAD]
    assert len(store.asked) == len(set(store.asked)) <= BLOCKS + 1


async def test_a_reader_of_single_blocks_is_read_one_ahead_of() -> None:
    store, cache = made()
    for count, block in enumerate((10, 4, 13, 7), 1):
        await read(cache, block)
        assert len(store.asked) == 2 * count


async def test_reads_ahead_of_a_slow_store_take_at_most_a_quarter_of_the_cache() -> None:
    store, cache = made(capacity=16 * BLOCK_BYTES)
    for block in range(4):
        await read(cache, block)
    store.may_answer.clear()
    asked = len(store.asked)
    for block in range(4, 8):
        await read(cache, block)
    assert len(store.asked) - asked == 4
    store.may_answer.set()
    await read(cache, 8)
    assert cache._size <= 16 * BLOCK_BYTES


async def test_the_end_of_a_segment_ends_the_read_ahead() -> None:
    store, cache = made()
    for block in range(BLOCKS + 1):
        await read(cache, block)
    assert sorted(store.asked) == [chunks_of(SEGMENT, block)[0] for block in range(BLOCKS + 1)]
