"""Know which partitions have a segment to copy, from what this process appends to them.

Rules
- An append adds to its partition's bytes. From segment.bytes on the partition is due, and the copy
  task is woken. Other partitions cost nothing, and the pass of the copy task finds what was
  appended in another way.
- After a claim of the lease the bytes are those that Redis says. Other processes of the broker
  append to the same partitions: an append counts once for each of them until then.
- Large batches to be copied are cached, in up to half of the batch cache. Those of a partition
  whose lease another process holds are not.
- Topics with remote.copy.lag.ms wait for the pass.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Container

import msgspec

from korvet.base import buffers
from korvet.remote_log.copier import segment_bytes
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
