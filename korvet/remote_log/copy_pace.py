"""Limit the rate of copies: by the setting, and while clients need the processors.

Rules
- Clients come first: while they append, or read from Redis to catch up, more than BUSY_BYTES a
  second, PACE_BYTES a second are copied. What is not copied stays in Redis, which has room for it.
- Redis has room below half of its memory budget, or below MAX_LAG_BYTES without a budget. Above
  that, copies are as fast as they can.
- remote.log.manager.copy.max.bytes.per.second limits all copies.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import monotonic

from korvet.config.values import Settings
from korvet.remote_log.copy_demand import CopyDemand, PartitionDemand
from korvet.remote_log.memory import MemoryBudget
from korvet.remote_log.store import RemoteStorageError
from korvet.store.errors import StoreError
from korvet.topics.table import Topic

Copy = Callable[[Topic, int], Awaitable[int]]
"""Copies a partition's next segment if it is due, and returns its bytes."""
LogFailure = Callable[[str, int, Exception], None]


async def follow(
    demand: CopyDemand, copy: Copy, max_copies: Callable[[], int], log_failure: LogFailure
) -> None:
    """Copy what is due until cancelled, at most so many partitions at a time."""
    running: set[asyncio.Task[None]] = set()
    demand.is_followed = True
    try:
        while True:
            due = await demand.next()
            while len(running) >= max_copies():
                await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            task = asyncio.create_task(_copy_one(demand, due, copy, log_failure))
            running.add(task)
            task.add_done_callback(running.discard)
    finally:
        demand.is_followed = False
        for task in running:
            task.cancel()


async def _copy_one(
    demand: CopyDemand, due: PartitionDemand, copy: Copy, log_failure: LogFailure
) -> None:
    """Copy one segment of a partition: others that are due follow before its next one."""
    size = 0
    try:
        size = await copy(due.topic, due.number)
    # ValueError: a batch of another Redis client is malformed.
    except (StoreError, RemoteStorageError, ValueError) as error:
        log_failure(due.topic.name, due.number, error)
    finally:
        demand.done(due, is_copied=size > 0)


BUSY_BYTES = 128e6
"""Bytes a second that clients append and read, above which copies are slow."""
PACE_BYTES = 32e6
"""Bytes a second that are copied then."""
ROOM_MARK = 0.5
"""Part of the memory budget above which copies do not wait for clients."""
MAX_LAG_BYTES = 1 << 30
"""Bytes that are not copied, above which copies do not wait for clients without a budget."""
STEP_S = 0.1
"""Seconds of one measurement of what clients append and read."""


@dataclass(eq=False, repr=False)
class CopyPace:
    """Lets the copies of one process wait; `moved` and `lag` count bytes.

    `moved`: what clients appended, and read from Redis to catch up.
    """

    settings: Callable[[], Settings]
    memory: MemoryBudget
    moved: Callable[[], int]
    lag: Callable[[], int]

    def __post_init__(self) -> None:
        self._limited_until = 0.0
        self._paced_until = 0.0
        self._measured_at = monotonic()
        self._before = 0
        self._is_busy = False

    @property
    def is_slow(self) -> bool:
        """Return whether copies wait for clients."""
        now = monotonic()
        passed_s = now - self._measured_at
        if passed_s >= STEP_S:
            total = self.moved()
            self._is_busy = total - self._before > BUSY_BYTES * passed_s
            self._measured_at, self._before = now, total
        return self._is_busy and self._has_room()

    def _has_room(self) -> bool:
        if self.memory.bytes >= 0:
            return self.memory.level < ROOM_MARK
        return self.lag() < MAX_LAG_BYTES

    async def wait(self, *, is_paced: bool) -> None:
        """Wait until the next copy may begin; `is_paced`: for clients too."""
        await asyncio.sleep(max(0.0, self._limited_until - monotonic()))
        # No event says that clients have become slower.
        while is_paced and monotonic() < self._paced_until and self.is_slow:  # noqa: ASYNC110
            await asyncio.sleep(STEP_S)

    def copied(self, size: int) -> None:
        """Count the bytes of a copy."""
        now = monotonic()
        rate = self.settings().integer("remote.log.manager.copy.max.bytes.per.second")
        self._limited_until = max(self._limited_until, now) + size / rate
        self._paced_until = max(self._paced_until, now) + size / PACE_BYTES
