"""The broker's cached batches, as the copier reads them: without an effect on other readers."""

from korvet.log.entry import Entry
from korvet.log.read_cache import ReadCache
from korvet.topics.table import Topic

MAX_BATCHES = 512
"""Batches of one read from the cache: other tasks run between two of them."""


class CopyCache(ReadCache):
    """Reads from `shared` without changing its order; caches nothing itself."""

    def __init__(self, shared: ReadCache) -> None:
        super().__init__(0, lambda: 0)
        self._shared = shared

    def is_valid(self) -> bool:
        """Return whether the store still uses the connection that filled the broker's cache."""
        return self._shared.is_valid()

    def batches_from(
        self, topic: Topic, partition: int, offset: int, max_bytes: int
    ) -> list[Entry]:
        """Return the broker's cached batches from the offset on."""
        return self._shared.peek(topic, partition, offset, max_bytes)[:MAX_BATCHES]

    def is_catch_up(self, topic: Topic, partition: int, offset: int, max_bytes: int) -> bool:
        """Return whether `max_bytes` of large batches are expected that are not cached."""
        is_cached = self.has(topic, partition, offset)
        return not is_cached and super().is_catch_up(topic, partition, offset, max_bytes)

    def has(self, topic: Topic, partition: int, offset: int) -> bool:
        """Return whether the broker has cached the batch that a read from the offset finds."""
        return self._shared.has(topic, partition, offset)
