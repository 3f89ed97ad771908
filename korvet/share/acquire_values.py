"""The values of an acquire: what a ShareFetch asks for, what it may use, and what it gets."""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from korvet.base.errors import ErrorCode
from korvet.fetch.response_memory import ResponseMemory
from korvet.groups.share_group import ShareGroupConfig
from korvet.log.reader import LogReader
from korvet.share.ranges import Run
from korvet.store.async_store import AsyncStore
from korvet.topics.table import Topic
from korvet.wire.records import Buffer


class ShareFetchParams(msgspec.Struct, frozen=True):
    """A ShareFetch, for all its partitions."""

    group: str
    member: str
    config: ShareGroupConfig
    exact: bool
    """Never more records than asked for (acquire mode 1)."""
    batch_size: int
    """Records after which a range of acquired records ends, at the next batch (mode 0)."""
    min_bytes: int
    """Bytes of the log for which the response waits."""


class Budget(msgspec.Struct):
    """The number of records and bytes that a response may still take."""

    records: int
    bytes: int
    is_used: bool = False
    """Whether the response has records: only its first batch may be larger than `bytes`."""


class Acquired(msgspec.Struct):
    """The result of one acquire."""

    error: ErrorCode = ErrorCode.NONE
    runs: Sequence[Run] = ()
    records: Sequence[Buffer] = ()
    wait_ms: int = -1
    """Time to the next expired lock or ended delay, -1: there is none."""
    skipped: bool = False
    """Whether another partition of the request may use up the budget."""


class Available(msgspec.Struct):
    """The bytes of the log from a share partition's next records on, as far as counted."""

    first: int = -1
    next: int = -1
    """The offset to count from."""
    bytes: int = 0


class ReadPosition(msgspec.Struct):
    """A share partition as this process knows it."""

    lock: asyncio.Lock
    next: int = -1
    """The offset to read from; -1: unknown."""
    room: int = 0
    ordered: bool = False
    """Whether calls need the keys of records (share.order=key)."""
    record_bytes: float = 0.0
    """Average size of a record in the last read, 0: unknown."""


class AcquireServices(msgspec.Struct, frozen=True):
    """The parts that an acquire uses."""

    store: AsyncStore
    log_reader: LogReader
    notice: Callable[[str, ShareGroupConfig, Topic, int, int], None]
    """Takes group, configs, partition, and how many dead letters of it are not copied."""
    memory: ResponseMemory
