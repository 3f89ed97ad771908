"""What a request asks for many times: some at a time, and not the same thing over and over.

A request may have hundreds of thousands of names. Asked for all together, their calls are one burst
to Redis, and nobody else is served until it is through. And where there is much to tell of one
name, a request of some kilobytes that names it again and again would have an answer of gigabytes.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

AT_ONCE = 100
"""So many are looked at side by side."""

PIECE = 500
"""So many are some milliseconds' work where Redis is not asked."""

MOST_TIMES = 10
"""So often a request may ask for the same thing. No client asks twice; Kafka counts to no end."""
TOO_OFTEN = f"It is named more than {MOST_TIMES} times in this request."

T = TypeVar("T")
R = TypeVar("R")


async def gather_bounded(work: Callable[[T], Awaitable[R]], items: Sequence[T]) -> list[R]:
    """What came of each, in their order."""
    found: list[R] = []
    for at in range(0, len(items), AT_ONCE):
        found += await asyncio.gather(*map(work, items[at : at + AT_ONCE]))
    return found


async def map_yielding(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """What came of each, in their order, where that asks nobody: others have their turn between."""
    found: list[R] = []
    for at in range(0, len(items), PIECE):
        if at:
            await asyncio.sleep(0)
        found += map(work, items[at : at + PIECE])
    return found


class RepeatLimit:
    """How often a request has asked for each thing so far."""

    def __init__(self) -> None:
        self._seen: Counter[object] = Counter()

    def too_many(self, thing: object) -> bool:
        """Whether this is once too often."""
        self._seen[thing] += 1
        return self._seen[thing] > MOST_TIMES
