"""Acquire records of partitions for members of share groups.

Within one process, members of a group read a partition one after another: otherwise all would read
the same records, and one would get them.
"""

import asyncio
from dataclasses import dataclass

from korvet.base.bounded import ByteBounded
from korvet.base.errors import TOPIC_GONE, ErrorCode
from korvet.fetch.partition_reader import ResponseMemory
from korvet.log.reader import LogReader
from korvet.share.acquire_values import (
    Acquired,
    AcquireServices,
    Available,
    Budget,
    ReadPosition,
    ShareFetchParams,
)
from korvet.share.dead_letters import DeadLetters
from korvet.share.partition_acquire import PartitionAcquire
from korvet.store.errors import StoreError
from korvet.topics.node import Node
from korvet.topics.table import Topic


@dataclass(eq=False, repr=False)
class Acquirer:
    """Acquires records of the partitions of one store."""

    node: Node
    log_reader: LogReader
    dead_letters: DeadLetters
    memory: ResponseMemory

    def __post_init__(self) -> None:
        self._services = AcquireServices(
            self.node.store, self.log_reader, self.dead_letters.notice, self.memory
        )
        self._positions = ByteBounded[tuple[str, str, int], ReadPosition](
            "share positions", 16 << 20
        )

    def max_bytes(self, asked: int) -> int:
        """Return how many bytes of records a response may have, after its first batch."""
        max_bytes = min(asked, self.node.settings().integer("fetch.max.bytes"))
        return max(0, min(max_bytes, self._services.memory.available))

    def channels(self, topic: Topic, partition: int) -> tuple[str, str]:
        """Return the channels of appends to the partition and of records released in it."""
        k = topic.partition(partition)
        return k.channel, k.share

    def forget_position(self, group: str, topic: Topic, partition: int) -> None:
        """Ask the script for the position of the next read: records may be available below it."""
        position = self._positions.get((group, topic.id, partition))
        if position is not None:
            position.next = -1

    async def acquire(
        self, params: ShareFetchParams, topic: Topic, partition: int, budget: Budget
    ) -> Acquired:
        """Acquire records within the budget, and take from it what they use."""
        position = self._position(params.group, topic, partition)
        async with position.lock:
            try:
                acquired = await PartitionAcquire(
                    self._services, params, topic, partition, position, budget
                ).run()
            except StoreError:
                position.next = -1
                return Acquired(ErrorCode.KAFKA_STORAGE_ERROR)
        if acquired.error in TOPIC_GONE:
            self.node.topics.invalidate()
        return acquired

    async def measure(
        self,
        params: ShareFetchParams,
        topic: Topic,
        partition: int,
        available: Available,
        max_bytes: int,
    ) -> Acquired:
        """Count the log's bytes from the group's next records on; return wait and error."""
        position = self._position(params.group, topic, partition)
        acquire = PartitionAcquire(self._services, params, topic, partition, position, Budget(0, 0))
        async with position.lock:
            try:
                await acquire.measure(available, max_bytes)
            except StoreError:
                available.bytes = max_bytes
        return acquire.acquired

    def _position(self, group: str, topic: Topic, partition: int) -> ReadPosition:
        key = (group, topic.id, partition)
        position = self._positions.get(key)
        if position is None:
            position = self._positions.put(key, ReadPosition(asyncio.Lock()))
        return position
