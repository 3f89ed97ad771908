"""A cache of stored batches that were read from Redis, or appended to it, last.

Rules
- A stored batch never changes and never moves: (topic id, partition, offset) identifies it on one
  Redis server. Another server may lack the last ones: `clear` the cache after a reconnection.
- Each fetch asks Redis for the log's state all the same: topic and log start decide whether a
  batch may still be read.
- The key is the offset a consumer asks for: the end of the batch below it. That no batch
  is between the two must be known, from one XRANGE or from the append's own reply.
- It holds at most `capacity` bytes, and drops the least recently used batch first.
"""

from collections import OrderedDict
from typing import Generic, Protocol, TypeVar


class Batch(Protocol):
    """The fields of an entry that the cache uses."""

    @property
    def last(self) -> int: ...
    @property
    def size(self) -> int: ...


B = TypeVar("B", bound=Batch)
ReadKey = tuple[str, int, int]
OVERHEAD = 512
"""Estimated bytes per cached batch, in addition to the batch."""


class BatchCache(Generic[B]):
    """Batches by the offset that reads them."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.size = 0
        self._batches: OrderedDict[ReadKey, B] = OrderedDict()

    def __len__(self) -> int:
        return len(self._batches)

    def put(self, topic_id: str, partition: int, offset: int, batch: B) -> None:
        """Store the batch that a read from `offset` finds first."""
        cost = batch.size + OVERHEAD
        if cost > self.capacity >> 2:
            return
        position = (topic_id, partition, offset)
        old = self._batches.pop(position, None)
        if old is not None:
            self.size -= old.size + OVERHEAD
        self._batches[position] = batch
        self.size += cost
        while self.size > self.capacity:
            _, dropped = self._batches.popitem(last=False)
            self.size -= dropped.size + OVERHEAD

    def has(self, topic_id: str, partition: int, offset: int) -> bool:
        """Return whether the batch that a read from `offset` finds first is cached."""
        return (topic_id, partition, offset) in self._batches

    def peek(self, topic_id: str, partition: int, offset: int, max_bytes: int) -> list[B]:
        """Return what `run` returns; the batches do not count as used."""
        return self.run(topic_id, partition, offset, max_bytes, uses=False)

    def drop(self, topic_id: str, partition: int, first: int, last: int) -> None:
        """Drop the batches from `first` on without a gap, as far as they end by `last`."""
        position = (topic_id, partition, first)
        while (batch := self._batches.get(position)) is not None and batch.last <= last:
            del self._batches[position]
            self.size -= batch.size + OVERHEAD
            position = (topic_id, partition, batch.last + 1)

    def clear(self) -> None:
        """Drop every batch."""
        self._batches.clear()
        self.size = 0

    def run(
        self, topic_id: str, partition: int, offset: int, max_bytes: int, *, uses: bool = True
    ) -> list[B]:
        """Return the cached batches from `offset` on, without a gap, up to `max_bytes`.

        The first is returned whatever its size. They count as used unless `uses` is False.
        """
        found: list[B] = []
        size = 0
        batches = self._batches
        while True:
            position = (topic_id, partition, offset)
            batch = batches.get(position)
            if batch is None:
                return found
            size += batch.size
            if found and size > max_bytes:
                return found
            if uses:
                batches.move_to_end(position)
            found.append(batch)
            offset = batch.last + 1
