"""Bounded concurrency for large requests, and a limit on repeated names.

A request may have hundreds of thousands of names. All their calls at once would be one write to
Redis, and every other client would wait for its end. A request of some kilobytes that repeats one
name with a long answer would have a response of gigabytes.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeVar

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
