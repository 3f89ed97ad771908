"""Read the log for an acquire: as many bytes as the member may take, and some for the next acquire.

What is read ahead is in the batch cache then, so that the next acquire of the group reads nothing.
"""

from dataclasses import KW_ONLY, dataclass

from korvet.base.errors import ErrorCode
from korvet.fetch.response_memory import ResponseMemory
from korvet.log.layouts import layout_of
from korvet.log.read_request import ReadRequest
from korvet.log.read_result import ReadResult
from korvet.log.reader import LogReader
from korvet.share.acquire_values import Budget, ReadPosition
from korvet.topics.table import Topic

MIN_READ_BYTES, FIRST_READ_BYTES, MAX_READ_BYTES = 1 << 14, 1 << 18, 8 << 20
MORE, AHEAD = 1.25, 8
"""Bytes read, as a multiple of the expected size of the records that the member may take."""


@dataclass(eq=False, repr=False)
class LogReads:
    """Reads of one partition's log from a share group's position on."""

    reader: LogReader
    memory: ResponseMemory
    topic: Topic
    partition: int
    position: ReadPosition
    _: KW_ONLY
    committed: bool

    def __post_init__(self) -> None:
        self._layout = layout_of(self.topic)

    async def at_position(self, budget: Budget) -> ReadResult:
        """Read from the position on, or take batches of the cache. Raises StoreError."""
        position = self.position
        max_bytes = min(max(budget.bytes, 0), MAX_READ_BYTES)
        wanted = int(position.record_bytes * budget.records)
        cached = self._cached(min(max_bytes, wanted))
        if cached is not None:
            return cached
        result = await self.at(position.next, min(max_bytes, self._bytes_for(wanted)))
        if result.entries:
            position.record_bytes = result.size / self._layout.count_records(result.entries)
        return result

    async def at(self, offset: int, max_bytes: int) -> ReadResult:
        """Read from an offset on, and count the bytes as held meanwhile. Raises StoreError."""
        request = ReadRequest(
            self.topic,
            self.partition,
            offset,
            max_bytes,
            committed=self.committed,
            decompress=True,
        )
        self.memory.bytes += max_bytes
        try:
            return await self.reader.read(request)
        finally:
            self.memory.bytes -= max_bytes

    def _cached(self, wanted: int) -> ReadResult | None:
        """Return batches of the cache, if they are as many bytes as wanted.

        The log's state is not read: the script checks topic, log start and end. A cleaning changes
        batches, and a committed read needs the last stable offset.
        """
        is_plain = self._layout.holds_batches and not self.topic.policy.compact
        if wanted <= 0 or not is_plain or self.committed:
            return None
        entries = self.reader.cache.batches_from(
            self.topic, self.partition, self.position.next, int(wanted * MORE)
        )
        size = sum(entry.size for entry in entries)
        if size < wanted:
            return None
        # Markers may be among them.
        return ReadResult(ErrorCode.NONE, entries=entries, size=size, stable=-1)

    def _bytes_for(self, wanted: int) -> int:
        """Return how many bytes to read: some ahead, if they are cached for the next acquire."""
        if not wanted:
            return FIRST_READ_BYTES
        # With an order each record read costs a digest and two arguments.
        if not self._layout.holds_batches or self.position.ordered:
            return max(MIN_READ_BYTES, int(wanted * MORE))
        return max(MIN_READ_BYTES, AHEAD * wanted)
