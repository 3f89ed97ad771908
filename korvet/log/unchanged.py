"""Partitions in which a background pass has nothing to do: their state has not changed.

Rules
- A pass asks for a partition's state by three plain commands. It works on the partition if the
  state differs from what it was before the last work that ended in order.
- A partition that never had a record has no work for segments.
- Time alone makes work too, such as retention: so a partition is worked on again after a tenth of
  its shortest time limit, and after QUIET_S.
- This is a cache of one process. Without it, as after a restart, a pass works on all partitions.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import Any, Protocol, TypeVar

from korvet.scripts.keys import Keys
from korvet.store.calls import AsyncCalls

QUIET_S = 300.0
"""Max seconds without work on a partition, as between two checks of retention."""
LOOKED_AT = 64
"""Partitions whose state one round of commands asks for."""
WORKED_AT = 8
"""Partitions that a pass works on between two pauses."""
WORK = 3
"""Partitions whose state a pass asks for in the time that it takes for one with work."""
LEAST_PER_S = 50
"""Partitions of a pass in a second, at least: a pass of more takes half of its interval."""
FIELDS = ("topic_id", "next", "entries", "start", "local_start", "tiered", "stable", "epoch")


class Stored(Protocol):
    """A topic and its definition as stored."""

    @property
    def name(self) -> str: ...
    @property
    def id(self) -> str: ...
    @property
    def raw(self) -> bytes: ...


T = TypeVar("T", bound=Stored)


class Unchanged:
    """The states of partitions when a pass found nothing more to do in them."""

    def __init__(
        self, store: AsyncCalls, keys: Keys, clock: Callable[[], float] = monotonic
    ) -> None:
        self._store = store
        self._keys = keys
        self._clock = clock
        self._seen: dict[tuple[str, int], object] = {}
        self._settled: dict[tuple[str, int], tuple[object, float]] = {}

    def keep(self, topics: Iterable[Stored]) -> None:
        """Forget the partitions of all other topics."""
        ids = {topic.id for topic in topics}
        for table in (self._seen, self._settled):
            for partition_id in [each for each in table if each[0] not in ids]:
                del table[partition_id]

    async def due(self, places: Sequence[tuple[T, int]]) -> list[tuple[T, int]]:
        """Return the partitions that have changed, or whose time has come."""
        states = await asyncio.gather(*(self._state(*partition_id) for partition_id in places))
        now, found = self._clock(), []
        for (topic, number), state in zip(places, states, strict=True):
            key = topic.id, number
            self._seen[key] = state
            settled, until = self._settled.get(key, (None, 0.0))
            if state is None or state != settled or now >= until:
                self._settled.pop(key, None)
                found.append((topic, number))
        return found

    def is_unused(self, topic: Stored, number: int) -> bool:
        """Return whether the partition never had a record when `due` asked for its state."""
        match self._seen.get((topic.id, number)):
            case _, (0, [*fields], 0):
                state = dict(zip(FIELDS, fields, strict=True))
                return state["next"] == b"0" and state["tiered"] is None
        return False

    def settle(self, topic: Stored, number: int, limits_ms: Iterable[int]) -> None:
        """Note that there is nothing to do while the state is that of the last `due`.

        `limits_ms`: times after which there is, even so; 0 and less for none.
        """
        shortest_ms = min((each for each in limits_ms if each > 0), default=int(QUIET_S * 10_000))
        quiet_s = min(QUIET_S, shortest_ms / 10_000)
        state = self._seen.get((topic.id, number))
        self._settled[topic.id, number] = state, self._clock() + quiet_s

    async def _state(self, topic: Stored, number: int) -> object:
        """Return the partition's state; None if Redis does not answer."""
        keys = self._keys.partition(topic.name, number)
        found: Sequence[Any] = await asyncio.gather(
            self._store.submit_command("XLEN", keys.stream),
            self._store.submit_command("HMGET", keys.log, *FIELDS),
            self._store.submit_command("EXISTS", keys.deleted_segments),
            return_exceptions=True,
        )
        if any(isinstance(each, BaseException) for each in found) or found[2]:
            return None
        return topic.raw, found


def pace(total: int, interval_s: float) -> float:
    """Return how many partitions a pass over `total` takes in a second."""
    return max(LEAST_PER_S, total / max(interval_s / 2, 0.001))
