"""Batches that were read from Redis or written to it lately, kept to be sent again.

Rules
- A stored batch never changes and never moves: (topic id, partition, position) names it for ever,
  on the server that has it. Where another may have taken over, which need not have seen the last
  of them, `clear` forgets all.
  Whether it may still be read (log start, topic) is asked of Redis at every fetch all the same.
- It is kept under the position a consumer asks for: the end of the batch before it. That the two
  are neighbours must be known, from one XRANGE or from the append's own reply.
- Never more than `capacity` bytes; what was not asked for longest goes first.
"""

from collections import OrderedDict
from typing import Generic, Protocol, TypeVar


class Batch(Protocol):
    """What the cache needs to know of an entry."""

    @property
    def last(self) -> int: ...
    @property
    def size(self) -> int: ...


B = TypeVar("B", bound=Batch)
Place = tuple[str, int, int]
OVERHEAD = 512
"""What keeping a batch costs beside its bytes, about."""


class BatchCache(Generic[B]):
    """Batches by the position that reads them."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.held = 0
        self._batches: OrderedDict[Place, B] = OrderedDict()

    def __len__(self) -> int:
        return len(self._batches)

    def put(self, topic_id: str, partition: int, position: int, batch: B) -> None:
        """Whoever asks for `position` gets this batch."""
        cost = batch.size + OVERHEAD
        if cost > self.capacity >> 2:
            return
        place = (topic_id, partition, position)
        old = self._batches.pop(place, None)
        if old is not None:
            self.held -= old.size + OVERHEAD
        self._batches[place] = batch
        self.held += cost
        while self.held > self.capacity:
            _, gone = self._batches.popitem(last=False)
            self.held -= gone.size + OVERHEAD

    def clear(self) -> None:
        """Nothing is kept."""
        self._batches.clear()
        self.held = 0

    def run(self, topic_id: str, partition: int, position: int, max_bytes: int) -> list[B]:
        """The batches from `position` on that are here without a gap, up to `max_bytes` of them.

        The first comes whatever its size.
        """
        found: list[B] = []
        size = 0
        batches = self._batches
        while True:
            place = (topic_id, partition, position)
            batch = batches.get(place)
            if batch is None:
                return found
            size += batch.size
            if found and size > max_bytes:
                return found
            batches.move_to_end(place)
            found.append(batch)
            position = batch.last + 1
