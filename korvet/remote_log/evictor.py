"""Make room in Redis: copy records of tiered topics at once, and drop the oldest copied ones.

Rules
- Only on servers above the budget's COPY_MARK, and only until they are below TRIM_MARK. Used memory
  is read after each step, so that no more leaves than has to.
- Copies ignore segment.ms, remote.copy.lag.* and the size of a segment; the partition with most
  bytes in Redis is first. Each copy is under the partition's lease.
- One process at a time trims, under a lease. log.apply_retention removes copied records only.
- What the groups of retention.consumed have not read leaves Redis only if nothing else can.
"""

import asyncio
import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from korvet.log.foreign_entries import adopt
from korvet.remote_log.manager import RemoteLogManager
from korvet.remote_log.memory import COPY_MARK, TRIM_MARK, MemoryBudget
from korvet.remote_log.store import RemoteStorageError
from korvet.store.errors import StoreError
from korvet.topics.node import Node
from korvet.topics.table import Topic

LEASE_MS = 5000
REST_S = 0.25
"""Time until the next attempt, if no memory could be freed."""
MIN_COPY_BYTES = 1 << 20
MAX_COPY_BYTES = 32 << 20
INDEX_STEP_BYTES = 65536


class LocalPart(msgspec.Struct, order=True):
    """A partition's records in Redis: the time of the oldest, and their bytes.

    The order is that of trims: topics with retention.consumed are the last.
    """

    is_held: bool
    oldest_ms: int
    bytes: int
    number: int
    name: str
    topic: Topic


@dataclass(eq=False, repr=False)
class MemoryEvictor:
    """Keeps Redis below its budget; `holder` names this process in the lease."""

    node: Node
    manager: RemoteLogManager
    memory: MemoryBudget
    holder: str

    def __post_init__(self) -> None:
        self._least = MIN_COPY_BYTES

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await self.memory.wait_for_pressure()
            try:
                if await self.make_room():
                    continue
            except (StoreError, ValueError) as error:
                self.manager.log_failure("", -1, error)
            await asyncio.sleep(REST_S)

    async def make_room(self) -> bool:
        """Trim, then copy if that was not enough. Returns whether either had an effect."""
        await self.memory.read()
        parts = await self._parts()
        trimmed = await self._trim(parts)
        if self.memory.level <= COPY_MARK:
            self._least = MIN_COPY_BYTES
            return trimmed
        copied = await self._copy(parts)
        # Many partitions of few bytes each: copy those too, if nothing else makes room.
        has_effect = trimmed or copied
        self._least = MIN_COPY_BYTES if has_effect else max(self._least // 4, 1)
        return has_effect

    async def _parts(self) -> list[LocalPart]:
        """Return the tiered partitions on servers that are above COPY_MARK."""
        found = [
            (topic, number)
            for topic in await self.node.topics.all()
            for number in range(topic.partitions if topic.policy.remote_storage else 0)
            if self._level(topic, number) > COPY_MARK
        ]
        parts = await asyncio.gather(*(self._part(topic, number) for topic, number in found))
        return [part for part in parts if part is not None]

    def _level(self, topic: Topic, number: int) -> float:
        stream = topic.partition(number).stream
        return self.memory.level_of(self.node.store.run_of(stream))

    async def _part(self, topic: Topic, number: int) -> LocalPart | None:
        """Return the records that a partition has in Redis; None if there are none."""
        await adopt(self.node.store, topic, number)
        keys = topic.partition(number)
        heads, totals = await asyncio.gather(
            self.node.store.command("ZRANGE", keys.index, 0, 1),
            self.node.store.command("HMGET", keys.log, "bytes", "start_bytes"),
        )
        if not heads or totals[0] is None:
            return None
        # A row has the newest timestamp below its offset: the second row's is the first step's.
        oldest = int(heads[-1].split(b":")[1])
        local = int(totals[0]) - int(totals[1] or 0)
        is_held = bool(topic.policy.consumed_by)
        return LocalPart(is_held, oldest, local, number, topic.name, topic) if local > 0 else None

    async def _trim(self, parts: Sequence[LocalPart]) -> bool:
        """Drop copied records, the oldest first, until TRIM_MARK; return whether there were any."""
        lease = self.node.keys.broker_lease(name="memory", holder=self.holder, ttl_ms=LEASE_MS)
        trimmed, queue = False, list(parts)
        heapq.heapify(queue)
        while queue and (await self.node.store.run(lease)).held:
            part = heapq.heappop(queue)
            if self._level(part.topic, part.number) <= TRIM_MARK:
                continue
            reply = await self.node.store.run(
                part.topic.partition(part.number).apply_retention(
                    retention_ms=-1, retention_bytes=0, steps=self._steps(), is_local=1
                )
            )
            if not reply.removed:
                continue
            trimmed = True
            await self.memory.read()
            left = await self._part(part.topic, part.number)
            if left is not None:
                heapq.heappush(queue, left)
        return trimmed

    def _steps(self) -> int:
        """Return the index steps to trim at once: about 1/64 of the budget, at most 4 MiB."""
        return min(max(self.memory.bytes // 64 // INDEX_STEP_BYTES, 1), 64)

    async def _copy(self, parts: Sequence[LocalPart]) -> bool:
        """Copy one segment of the partitions with most bytes; return whether any was copied."""
        max_bytes = min(max(self.memory.bytes // 16, MIN_COPY_BYTES), MAX_COPY_BYTES)
        queue = sorted(parts, key=lambda part: -part.bytes)
        for at in range(0, len(queue), self.manager.copies):
            if queue[at].bytes < self._least:
                break
            found = await asyncio.gather(
                *(self._copy_part(part, max_bytes) for part in queue[at : at + self.manager.copies])
            )
            if any(found):
                return True
        return False

    async def _copy_part(self, part: LocalPart, max_bytes: int) -> int:
        try:
            return await self.manager.copy(
                part.topic, part.number, at_once=(self._least, max_bytes)
            )
        # ValueError: a batch of another Redis client is malformed.
        except (StoreError, RemoteStorageError, ValueError) as error:
            self.manager.log_failure(part.name, part.number, error)
            return 0
