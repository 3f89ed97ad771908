"""Know which partitions have a segment to copy, and limit the rate of copies.

Rules
- An append adds to its partition's bytes. From segment.bytes on the partition is due, and the copy
  task is woken. Other partitions cost nothing, and the pass of the copy task finds what was
  appended in another way.
- After a claim of the lease the bytes are those that Redis says. Other processes of the broker
  append to the same partitions: an append counts once for each of them until then.
- Large batches to be copied are cached, in up to half of the batch cache. Those of a partition
  whose lease another process holds are not.
- Topics with remote.copy.lag.ms wait for the pass.

Rules of the pace
- Clients come first: while they append, or read from Redis to catch up, more than BUSY_BYTES a
  second, PACE_BYTES a second are copied. What is not copied stays in Redis, which has room for it.
- Redis has room below half of its memory budget, or below MAX_LAG_BYTES without a budget. Above
  that, copies are as fast as they can.
- remote.log.manager.copy.max.bytes.per.second limits all copies.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Container
from dataclasses import dataclass
from time import monotonic

import msgspec

from korvet.base import buffers
from korvet.config.values import Settings
from korvet.remote_log.copier import segment_bytes
from korvet.remote_log.memory import MemoryBudget
from korvet.remote_log.store import RemoteStorageError
from korvet.store.errors import StoreError
from korvet.topics.table import Topic

KEPT_BYTES = 8 * 1024
"""Bytes from which on a batch is cached for its copy: smaller ones cost less to read again."""
RETRY_S = 1.0
"""Seconds until a due partition that was not copied is tried again."""


class PartitionDemand(msgspec.Struct, eq=False):
    """Counts what this process appended to a partition."""

    topic: Topic
    number: int
    least: int
    """Bytes from which on the partition is due; -1: never."""
    pending: int = 0
    """Bytes that are not copied, as far as known."""
    kept: int = 0
    """Bytes of them that were cached."""
    is_kept: bool = True
    is_due: bool = False


class CopyDemand:
    """The partitions of one broker process that are due."""

    def __init__(self, cache_bytes: Callable[[], int], processes: int) -> None:
        self.is_followed = False
        """Whether the copy task of this process copies what is due."""
        self.appended_bytes = 0
        """Bytes of batches that this process appended, to be copied."""
        self._cache_bytes = cache_bytes
        self._processes = processes
        self._kept = 0
        self._retains = False
        """Whether memory of copied batches is kept for the next ones."""
        self._demands: dict[tuple[str, int], PartitionDemand] = {}
        self._due: deque[PartitionDemand] = deque()
        self._event = asyncio.Event()

    def appended(self, topic: Topic, number: int, size: int) -> bool:
        """Count an appended batch; return whether it is to be cached for its copy."""
        if not self.is_followed or not topic.policy.remote_storage:
            return False
        demand = self._demands.get((topic.id, number))
        if demand is None or demand.topic is not topic:
            demand = self._demand_of(topic, number)
        if demand.least < 0:
            return False
        self.appended_bytes += size
        demand.pending += size * self._processes
        if demand.pending >= demand.least and not demand.is_due:
            self._ask(demand)
        if size < KEPT_BYTES:
            return False
        room = self._cache_bytes() >> 1
        if demand.is_kept and self._kept + size <= room:
            if not self._retains:
                self._retains = True
                buffers.retain_freed(2 * room)
            demand.kept += size
            self._kept += size
            return True
        demand.is_kept = False
        return False

    def _demand_of(self, topic: Topic, number: int) -> PartitionDemand:
        """Return the partition's entry, with the topic's present configs."""
        policy = topic.policy
        waits = policy.remote_copy_disable or policy.copy_lags[0] != 0
        least = -1 if waits else segment_bytes(policy)
        demand = self._demands.get((topic.id, number))
        if demand is None:
            demand = self._demands[topic.id, number] = PartitionDemand(topic, number, least)
        demand.topic, demand.least = topic, least
        return demand

    def _ask(self, demand: PartitionDemand) -> None:
        demand.is_due = True
        self._due.append(demand)
        self._event.set()

    async def next(self) -> PartitionDemand:
        """Return the next partition that is due, once there is one; then call `done`."""
        while not self._due:
            self._event.clear()
            await self._event.wait()
        return self._due.popleft()

    def done(self, demand: PartitionDemand, *, is_copied: bool) -> None:
        """Note that the partition was tried; it is due again if it still has enough bytes."""
        demand.is_due = False
        if is_copied:
            self._check(demand)
        else:
            asyncio.get_running_loop().call_later(RETRY_S, self._check, demand)

    def _check(self, demand: PartitionDemand) -> None:
        is_known = self._demands.get((demand.topic.id, demand.number)) is demand
        if is_known and not demand.is_due and 0 <= demand.least <= demand.pending:
            self._ask(demand)

    def pending(self, topic_id: str, number: int) -> int:
        """Return the bytes that are not copied, as far as known."""
        demand = self._demands.get((topic_id, number))
        return 0 if demand is None else demand.pending

    def note_copy(
        self, topic_id: str, number: int, before: int, left: int | None, copied: int
    ) -> None:
        """Take what a copy has found: the `left` that Redis has, None without the lease.

        `before`: what was pending when the lease was acquired.
        """
        demand = self._demands.get((topic_id, number))
        if demand is None:
            return
        demand.is_kept = left is not None
        freed = demand.kept if left is None else min(demand.kept, copied)
        demand.kept -= freed
        self._kept -= freed
        if left is not None:
            demand.pending = left + max(0, demand.pending - before)

    def forget_except(self, topic_ids: Container[str]) -> None:
        """Forget the partitions of other topics."""
        for key in [key for key in self._demands if key[0] not in topic_ids]:
            self._kept -= self._demands.pop(key).kept


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
