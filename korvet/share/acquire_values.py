"""The values of an acquire: what a ShareFetch asks for, what it may use, and what it gets.

Rules of the ranges of offsets with records, which a read of the log found for share.acquire
- In layout `batch` a range is a batch, or adjacent batches that the member takes together. In
  layout `record` it is a run of adjacent records.
- Markers hold no record. Under read_committed records of aborted transactions do not count either:
  a share group never gets them.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b

import msgspec

from korvet.base.errors import ErrorCode
from korvet.fetch.partition_reader import ResponseMemory
from korvet.groups.share_group import ShareGroupConfig
from korvet.log.entry import Entry
from korvet.log.layouts import layout_of, records_in, with_records
from korvet.log.read_result import ReadResult
from korvet.log.reader import LogReader
from korvet.store.async_store import AsyncStore
from korvet.topics.table import Topic
from korvet.wire.records import Buffer

Range = tuple[int, int]
"""First and last offset."""
Run = tuple[int, int, int]
"""First offset, last offset and deliveries of acquired records."""


def ranges_of(topic: Topic, result: ReadResult, offset: int, records: int) -> list[Range]:
    """Return the ranges of the entries from `offset` on.

    Whole batches of about `records` records are one range: the member takes them together.
    """
    layout = layout_of(topic)
    entries: Iterable[Entry] = result.entries
    if result.stable is not None:
        rows = with_records(layout, result.entries, result.aborted)
        entries = [entry for entry, has_records in rows if has_records]
    limit = records if layout.holds_batches else 1 << 62
    found: list[Range] = []
    for entry in entries:
        first = max(entry.first, offset)
        last = layout.last_record(entry)
        if found and found[-1][1] + 1 == first and last - found[-1][0] < limit:
            found[-1] = (found[-1][0], last)
        elif first <= last:
            found.append((first, last))
    return found


def keyed_records(topic: Topic, result: ReadResult, offset: int) -> list[tuple[int, str]]:
    """Return offset and digest of the key of each record from `offset` on.

    A record without a key has a unique digest: no other record waits for it.
    """
    return [
        (at, f"n{at}" if key is None else blake2b(key, digest_size=8).hexdigest())
        for at, _, key, _, _ in records_in(topic, result.entries, result.aborted)
        if at >= offset
    ]


def entries_with(entries: Sequence[Entry], runs: Sequence[Run]) -> list[Entry]:
    """Return the entries that hold a record of the runs; both ascend."""
    found, at = [], 0
    for entry in entries:
        while at < len(runs) and runs[at][1] < entry.first:
            at += 1
        if at < len(runs) and runs[at][0] <= entry.last:
            found.append(entry)
    return found


def cut_runs(runs: Sequence[Run], entries: Sequence[Entry], size: int) -> list[Run]:
    """Return the runs, each cut where a batch begins `size` or more offsets after the run's first.

    Both ascend. A record of layout `record` is a batch.
    """
    found: list[Run] = []
    at = 0
    for first, last, deliveries in runs:
        if last - first >= max(size, 1):
            while at < len(entries) and entries[at].first <= first:
                at += 1
            while at < len(entries) and (begin := entries[at].first) <= last:
                if begin - first >= size:
                    found.append((first, begin - 1, deliveries))
                    first = begin
                at += 1
        found.append((first, last, deliveries))
    return found


def drop_above(result: ReadResult, max_bytes: int) -> None:
    """Drop the entries above `max_bytes` bytes, which another partition has used; keep one."""
    size = 0
    for at, entry in enumerate(result.entries):
        size += entry.size
        if size > max_bytes and at:
            del result.entries[at:]
            return


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
