"""The budget `local.memory.bytes`: read what Redis uses, slow producers, refuse when it is full.

Rules
- Every broker reads used_memory while a budget is set. The less room is left, the sooner it reads
  again, so that producers at full speed do not pass the budget between two reads.
- Above COPY_MARK the evictor makes room; above SLOW_MARK producers are throttled.
- At the budget only batches for topics that cannot be tiered are refused; above REFUSE_MARK all
  are, as the remote store does not take copies then.
"""

import asyncio
from collections.abc import Callable

from korvet.config.values import Settings
from korvet.store.async_store import AsyncStore
from korvet.store.errors import StoreError

COPY_MARK = 0.8
"""Part of the budget above which records are copied at once and leave Redis."""
TRIM_MARK = 0.75
"""Part of the budget down to which copied records leave Redis."""
SLOW_MARK = 0.85
"""Part of the budget above which producers are throttled."""
REFUSE_MARK = 1.1
"""Part of the budget above which batches for all topics are refused."""
MAX_THROTTLE_MS = 10_000
MIN_INTERVAL_S, MAX_INTERVAL_S = 0.02, 0.5
PEAK_BYTES = 400e6
"""Bytes a second by which used memory may grow: gives the time until the next read."""


class MemoryBudget:
    """The used memory of the Redis servers, in parts of the budget."""

    def __init__(self, store: AsyncStore, settings: Callable[[], Settings]) -> None:
        self._store = store
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
        """Return whether producers are throttled."""
        return self.level > SLOW_MARK

    @property
    def is_full(self) -> bool:
        return self.level >= 1

    @property
    def is_exceeded(self) -> bool:
        return self.level > REFUSE_MARK

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
