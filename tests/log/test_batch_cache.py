"""Check the cache of batches: found in a row, within its size limit."""

from hypothesis import given
from hypothesis import strategies as st

from korvet.log.entry import Entry
from korvet.log.read_cache import OVERHEAD, BatchCache


def batch(last: int, size: int) -> Entry:
    """Return an entry that ends at that offset."""
    return Entry(last, last, [], 0, size)


def test_batches_known_to_be_neighbours_are_found_in_a_row() -> None:
    cache = BatchCache(1 << 20)
    cache.put("t", 0, 0, batch(9, 100))
    cache.put("t", 0, 10, batch(19, 100))
    cache.put("t", 0, 30, batch(39, 100))
    assert [each.last for each in cache.run("t", 0, 0, 1000)] == [9, 19]
    assert cache.run("t", 0, 5, 1000) == []
    assert cache.run("t", 1, 0, 1000) == []
    assert cache.run("u", 0, 0, 1000) == []


def test_the_first_batch_comes_whatever_its_size() -> None:
    cache = BatchCache(1 << 20)
    cache.put("t", 0, 0, batch(9, 100))
    cache.put("t", 0, 10, batch(19, 100))
    assert len(cache.run("t", 0, 0, 1)) == 1
    assert len(cache.run("t", 0, 0, 200)) == 2


def test_the_least_recently_read_batches_are_dropped_first() -> None:
    cache = BatchCache(4 * (100 + OVERHEAD))
    for position in range(4):
        cache.put("t", 0, position, batch(position, 100))
    cache.run("t", 0, 0, 1)
    cache.put("t", 0, 4, batch(4, 100))
    assert cache.run("t", 0, 0, 1)
    assert not cache.run("t", 0, 1, 1)


def test_dropped_batches_take_no_room() -> None:
    cache = BatchCache(1 << 20)
    for position in range(4):
        cache.put("t", 0, position, batch(position, 100))
    cache.drop("t", 0, 1, 2)
    assert [cache.has("t", 0, position) for position in range(4)] == [True, False, False, True]
    assert cache.size == 2 * (100 + OVERHEAD)


def test_without_capacity_nothing_is_kept() -> None:
    cache = BatchCache(0)
    cache.put("t", 0, 0, batch(0, 100))
    assert len(cache) == 0


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5000)), max_size=200))
def test_it_never_holds_more_than_its_capacity(puts: list[tuple[int, int]]) -> None:
    cache = BatchCache(20_000)
    for position, size in puts:
        cache.put("t", 0, position, batch(position, size))
        assert cache.size <= cache.capacity
    assert cache.size == sum(
        each.size + OVERHEAD for at in range(31) for each in cache.run("t", 0, at, 0)
    )
