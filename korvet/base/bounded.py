"""Bounded concurrency for large requests, a limit on repeated names, and caches bounded in bytes.

A request may have hundreds of thousands of names. All their calls at once would be one write to
Redis, and every other client would wait for its end. A request of some kilobytes that repeats one
name with a long answer would have a response of gigabytes.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from sys import getsizeof
from threading import Lock
from typing import Any, ClassVar, Generic, TypeVar
from weakref import WeakSet

import msgspec

MAX_CONCURRENT = 100
"""Max concurrent calls of one request."""

ITEMS_PER_YIELD = 500
"""Items of local work between two yields to the event loop: some milliseconds."""

MAX_REPEATS = 10
"""Max repetitions of one name in a request. Clients ask once; Kafka has no limit."""
TOO_OFTEN = f"It is named more than {MAX_REPEATS} times in this request."

T = TypeVar("T")
R = TypeVar("R")


def chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield the items in runs of that size."""
    for at in range(0, len(items), size):
        yield items[at : at + size]


async def gather_bounded(work: Callable[[T], Awaitable[R]], items: Sequence[T]) -> list[R]:
    """Return the results in order, with at most MAX_CONCURRENT calls in flight."""
    found: list[R] = []
    for some in chunks(items, MAX_CONCURRENT):
        found += await asyncio.gather(*map(work, some))
    return found


async def map_yielding(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Return the results of local work in order, yielding every ITEMS_PER_YIELD items."""
    found: list[R] = []
    for at in range(0, len(items), ITEMS_PER_YIELD):
        if at:
            await asyncio.sleep(0)
        found += map(work, items[at : at + ITEMS_PER_YIELD])
    return found


async def gather_named(
    work: Callable[[T], Awaitable[R]],
    refuse: Callable[[T], R],
    items: Sequence[T],
    name_of: Callable[[T], object] = lambda item: item,
) -> list[R]:
    """Return the results as `gather_bounded` does; repetitions above the limit are refused."""
    times = RepeatLimit()

    async def one(item: T) -> R:
        return refuse(item) if times.too_many(name_of(item)) else await work(item)

    return await gather_bounded(one, items)


class RepeatLimit:
    """Counts how often a request has named each thing."""

    def __init__(self) -> None:
        self._seen: Counter[object] = Counter()

    def too_many(self, thing: object) -> bool:
        """Return whether this repetition exceeds the limit."""
        self._seen[thing] += 1
        return self._seen[thing] > MAX_REPEATS


def without_repeats(
    topics: Sequence[T],
    name_of: Callable[[T], object],
    rows_of: Callable[[T], Sequence[R]],
    index_of: Callable[[R], int],
) -> list[tuple[T, list[R]]]:
    """Return each topic with each of its rows once: the last row of a partition, as in Kafka."""
    first: dict[object, T] = {}
    rows: dict[object, dict[int, R]] = {}
    for topic in topics:
        name = name_of(topic)
        first.setdefault(name, topic)
        rows.setdefault(name, {}).update((index_of(row), row) for row in rows_of(topic))
    return [(topic, list(rows[name].values())) for name, topic in first.items()]


ROW_BYTES = 150
"""Approximate memory of a row in a dict, without its key and value."""
K = TypeVar("K")
V = TypeVar("V")


class ByteBounded(Generic[K, V]):
    """A cache that forgets its oldest rows above a number of bytes.

    Names come from clients, and one may have 32 KB: a limit on rows would be none on memory. The
    opener's thread uses some caches too, so `put` takes a lock; `get` is that of the dict.
    """

    instances: ClassVar[WeakSet[Any]] = WeakSet()
    """All caches of the process, for tests."""

    def __init__(
        self, name: str, limit: int, forgotten: Callable[[V], object] = lambda value: None
    ) -> None:
        """`forgotten` is called with each value that leaves because of the limit."""
        self.name = name
        self._forgotten = forgotten
        self.limit = limit
        self.bytes = 0
        self._rows: dict[K, V] = {}
        # A dict would look for its oldest key among all that have left.
        self._sizes: OrderedDict[K, int] = OrderedDict()
        self._lock = Lock()
        self.get = self._rows.get
        self.instances.add(self)

    def __len__(self) -> int:
        return len(self._rows)

    def put(self, key: K, value: V, size: int | None = None) -> V:
        """Set a row and return its value; the oldest ones leave. A row above the limit is not kept.

        `size` is that of the value, if it is known. Call this again for a value that has grown.
        """
        size = ROW_BYTES + size_of(key) + (size_of(value) if size is None else size)
        with self._lock:
            self._remove(key)
            if size <= self.limit:
                self._rows[key], self._sizes[key] = value, size
                self.bytes += size
            else:
                self._forgotten(value)
            while self.bytes > self.limit:
                oldest = next(iter(self._sizes))
                gone = self._rows[oldest]
                self._remove(oldest)
                self._forgotten(gone)
        return value

    def values(self) -> list[V]:
        """Return the values, the oldest first."""
        return [self._rows[key] for key in self._sizes]

    def pop(self, key: K) -> None:
        """Remove a row if it is there."""
        with self._lock:
            self._remove(key)

    def clear(self) -> None:
        """Remove all rows."""
        with self._lock:
            self._rows.clear()
            self._sizes.clear()
            self.bytes = 0

    def _remove(self, key: K) -> None:
        self.bytes -= self._sizes.pop(key, 0)
        self._rows.pop(key, None)


def size_of(value: object) -> int:
    """Return the memory of a value and of what it contains, in bytes."""
    size = getsizeof(value)
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.astuple(value)
    if isinstance(value, dict):
        return size + sum(size_of(key) + size_of(row) for key, row in value.items())
    if isinstance(value, tuple | list | set | frozenset):
        return size + sum(map(size_of, value))
    return size
