"""The reader of one store's partitions."""

from collections.abc import Callable
from dataclasses import dataclass

from korvet.log.partition_read import PartitionRead
from korvet.log.range_reads import RangeReads
from korvet.log.read_cache import ReadCache
from korvet.log.read_request import ReadRequest
from korvet.log.read_result import Ranges, ReadResult, RemoteReader
from korvet.log.recent_states import RecentStates
from korvet.log.size_estimates import MAX_ENTRIES
from korvet.store.calls import ReadCalls


@dataclass(eq=False, repr=False)
class LogReader:
    """Reads partitions of one store, and caches sizes and up to `cache_bytes` of batches."""

    store: ReadCalls
    cache_bytes: int = 0
    max_entries: int = MAX_ENTRIES
    connection_epoch: Callable[[], int] = lambda: 0

    def __post_init__(self) -> None:
        self.remote: RemoteReader | None = None
        self.states: RecentStates | None = None
        """States of the last milliseconds, for consumers that catch up."""
        self.ranges: RangeReads | None = None
        """The reads of large batches, if the store has a connection for them."""
        self.cache = ReadCache(self.cache_bytes, self.connection_epoch)

    def use_ranges(self, ranges: Ranges, *, ahead: bool = True) -> None:
        """Read large batches far below the end on the store's connection for ranges.

        Those that a sequential reader needs next are read `ahead`.
        """
        self.states = RecentStates(self.store)
        self.ranges = RangeReads(
            ranges,
            self.store,
            self.cache,
            self.states,
            self.max_entries,
            self.connection_epoch,
            reads_ahead=ahead,
        )

    async def read(self, request: ReadRequest) -> ReadResult:
        """Return the entries from the request's offset on, at least one if there is one."""
        read = PartitionRead(
            request,
            self.store,
            self.cache,
            self.max_entries,
            remote=self.remote,
            states=self.states,
            ranges=self.ranges,
        )
        return await read.run()
