"""Check the choice of read batches that are cached."""

from types import SimpleNamespace
from typing import Any

from korvet.log.batch_reply import Batches
from korvet.log.entry import Entry
from korvet.log.read_cache import LARGE, TAIL_SHARE, ReadCache

POLICY = SimpleNamespace(offset_mode="dense", storage_format="batch")
TOPIC: Any = SimpleNamespace(id="t", policy=POLICY)
CAPACITY = 64 * LARGE
TAIL = CAPACITY // TAIL_SHARE // LARGE
"""Large batches within the tail."""
END = 100


def entries(first: int, count: int, size: int = LARGE) -> list[Entry]:
    """Return `count` batches of one record each."""
    return [Entry(at, at, [], 0, size) for at in range(first, first + count)]


def cached(cache: ReadCache, offset: int) -> int:
    """Return how many batches the cache has from an offset on."""
    return len(cache.batches_from(TOPIC, 0, offset, CAPACITY))


def test_a_single_reader_that_catches_up_does_not_fill_the_cache() -> None:
    cache = ReadCache(CAPACITY, lambda: 0)
    for at in range(0, 80, 10):
        cache.learn_entries(TOPIC, 0, at, entries(at, 10), END)
    assert not any(cached(cache, at) for at in range(80))


def test_what_is_read_for_the_second_time_is_cached_whatever_the_reads_borders() -> None:
    cache = ReadCache(CAPACITY, lambda: 0)
    cache.learn_entries(TOPIC, 0, 0, entries(0, 10), END)
    cache.learn_entries(TOPIC, 0, 10, entries(10, 10), END)
    cache.learn_entries(TOPIC, 0, 5, entries(5, 10), END)
    assert cached(cache, 5) == 10 and not cached(cache, 0) and not cached(cache, 15)


def test_the_end_of_a_log_and_small_batches_are_cached_at_once() -> None:
    cache = ReadCache(CAPACITY, lambda: 0)
    cache.learn_entries(TOPIC, 0, END - TAIL - 1, entries(END - TAIL - 1, 1), END)
    assert cached(cache, END - TAIL - 1) == 1
    cache.learn_entries(TOPIC, 0, END - TAIL - 2, entries(END - TAIL - 2, 1), END)
    assert cached(cache, END - TAIL - 2) == 0
    cache.learn_entries(TOPIC, 0, 0, entries(0, 20, size=LARGE - 1), END)
    assert cached(cache, 0) == 20


def batches(first: int, count: int, size: int = LARGE) -> Batches:
    """Return `count` batches of one record each, like a range read."""
    offsets = list(range(first, first + count))
    parts = []
    for at in offsets:
        part = bytearray(size)
        part[:8] = at.to_bytes(8, "big")
        parts.append(memoryview(part))
    return Batches(parts, offsets, first, first + count, count, count * size)


def test_a_range_is_cached_if_one_before_it_began_in_it() -> None:
    cache = ReadCache(CAPACITY, lambda: 0)
    for at in range(0, 40, 10):
        cache.learn_range(TOPIC, 0, batches(at, 10), END)
    assert not any(cached(cache, at) for at in range(40))
    cache.learn_range(TOPIC, 0, batches(5, 10), END)
    assert cached(cache, 5) == 10 and not cached(cache, 0) and not cached(cache, 15)
    cache.learn_range(TOPIC, 0, batches(40, 10), END)
    assert not cached(cache, 40)


def test_a_range_at_the_end_of_a_log_is_cached_at_once() -> None:
    cache = ReadCache(CAPACITY, lambda: 0)
    cache.learn_range(TOPIC, 0, batches(END - TAIL - 2, 2), END)
    assert cached(cache, END - TAIL - 2) == 2
    cache.learn_range(TOPIC, 0, batches(END - TAIL - 12, 2), END)
    assert cached(cache, END - TAIL - 12) == 0
