"""The budget `local.memory.bytes`: read what Redis uses, slow producers, refuse when it is full.

Rules
- Every broker reads used_memory while a budget is set. The less room is left, the sooner it reads
  again, so that producers at full speed do not pass the budget between two reads.
- Above COPY_MARK the evictor makes room. Above SLOW_MARK producers of topics above their share of
  the memory are throttled (`memory_shares`).
- At the budget batches for topics above their share that cannot be tiered are refused; above
  REFUSE_MARK also those for tiered topics, as the remote store does not take their copies then.
- A refusal is answered at once, with a retriable error. It ends with the next read that finds room.
"""

import asyncio
from collections.abc import Callable, Iterable

from korvet.config.values import Settings
from korvet.remote_log.memory_shares import REFUSE_MARK, SLOW_MARK, SharesReader, leaves_redis
from korvet.store.async_store import AsyncStore
from korvet.store.errors import StoreError
from korvet.topics.table import Topic

COPY_MARK = 0.8
"""Part of the budget above which records are copied at once and leave Redis."""
TRIM_MARK = 0.75
"""Part of the budget down to which copied records leave Redis."""
MAX_THROTTLE_MS = 2000
MIN_INTERVAL_S, MAX_INTERVAL_S = 0.02, 0.5
PEAK_BYTES = 400e6
"""Bytes a second by which used memory may grow: gives the time until the next read."""


class MemoryBudget:
    """The used memory of the Redis servers, in parts of the budget."""

    def __init__(
        self, store: AsyncStore, settings: Callable[[], Settings], shares: SharesReader
    ) -> None:
        self._store = store
        self._shares = shares
        self._settings = settings
        self._levels: dict[str, float] = {}
        self._pressed = asyncio.Event()
        self.level = 0.0
        """Level of the fullest server, 0 without a budget."""

    @property
    def bytes(self) -> int:
        """The budget of each server in bytes, -1 if there is none."""
        return self._settings().integer("local.memory.bytes")

    @property
    def slows(self) -> bool:
        """Return whether producers of some topics are throttled."""
        return self.level > SLOW_MARK

    def slows_any(self, topic_ids: Iterable[str]) -> bool:
        """Return whether producers of one of the topics are throttled."""
        slowed = self._shares.shares.slowed
        return self.slows and (slowed is None or not slowed.isdisjoint(topic_ids))

    @property
    def is_full(self) -> bool:
        return self.level >= 1

    def refusal(self, topic: Topic) -> str | None:
        """Return why batches for the topic are refused; None if they are not."""
        is_tiered, refused = leaves_redis(topic), self._shares.shares.refused
        is_above = self.level > (REFUSE_MARK if is_tiered else 1)
        if not is_above or (refused is not None and topic.id not in refused):
            return None
        if is_tiered:
            return "Redis is above local.memory.bytes: the remote store does not take copies."
        return "Redis has reached local.memory.bytes and the topic is not tiered."

    @property
    def refused_names(self) -> list[str]:
        """Return the names of the topics whose batches are refused, the largest topics first."""
        return self._shares.refused_names

    def level_of(self, run: str) -> float:
        """Return the level of the server with that run id, 0 if it was not read."""
        return self._levels.get(run, 0.0)

    def throttle_ms(self) -> int:
        """Return how long a producer waits until its next request: 1 s at the budget."""
        excess = max(0.0, self.level - SLOW_MARK) / (1 - SLOW_MARK)
        return min(round(1000 * excess**2), MAX_THROTTLE_MS)

    async def read(self) -> None:
        """Read the used memory of all servers."""
        budget = self.bytes
        used = await self._store.used_memory() if budget >= 0 else {}
        self._levels = {run: size / max(budget, 1) for run, size in used.items()}
        self.level = max(self._levels.values(), default=0.0)
        if self.level > COPY_MARK:
            self._pressed.set()
        else:
            self._pressed.clear()
        if self.slows:
            await self._shares.read(used, budget)
        else:
            self._shares.forget()

    async def wait_for_pressure(self) -> None:
        """Wait until a server is above COPY_MARK."""
        await self._pressed.wait()

    async def run(self) -> None:
        """Read again and again until cancelled; without Redis the last levels stay."""
        while True:
            try:
                await self.read()
            except StoreError:
                await asyncio.sleep(MAX_INTERVAL_S)
            await asyncio.sleep(self._interval_s())

    def _interval_s(self) -> float:
        budget = self.bytes
        if budget < 0:
            return MAX_INTERVAL_S
        room = max(0.0, SLOW_MARK - self.level) * budget
        return min(max(room / PEAK_BYTES, MIN_INTERVAL_S), MAX_INTERVAL_S)
