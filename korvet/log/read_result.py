"""The request for one read of a partition, its result, and its restriction to committed records."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

import msgspec

from korvet.base.errors import ErrorCode
from korvet.log.entry import Entry
from korvet.log.layouts.base import BaseLayout
from korvet.scripts.call import Arg
from korvet.scripts.calls.partition import ListOffsetsReply
from korvet.scripts.keys import Partition
from korvet.store.calls import ReadCalls
from korvet.store.range_connection import RangeReply
from korvet.topics.table import Topic
from korvet.wire.records import Buffer

ABORTED_ROWS = 256
"""Rows of the index of aborted transactions per command."""


class ReadRequest(msgspec.Struct, frozen=True):
    """Entries of one partition from an offset on: about `max_bytes`, at least one entry."""

    topic: Topic
    partition: int
    offset: int
    max_bytes: int
    committed: bool = False
    """End at the last stable offset, and list aborted transactions."""
    raw: bool = False
    """Layout `bytes`: include the entry whose last record is below the offset, for its bytes."""
    batches: bool = False
    """Return records as stored batches where possible, in `ReadResult.batches`."""
    decompress: bool = False
    """Return values that are compressed at rest as they are sent, and count them so."""
    leader_epoch: int = -1
    """The epoch that the client knows, -1 if it names none."""


class Ranges(Protocol):
    """A store with a connection for large ranges."""

    def submit_range(
        self, key: str, commands: Sequence[Sequence[Arg]], reply: RangeReply
    ) -> asyncio.Future[None] | None: ...


class RemoteReader(Protocol):
    """The reader of the records that left Redis for segments."""

    @property
    def serves_copies(self) -> bool:
        """Return whether a read of records that Redis has too costs less than from Redis."""

    async def read(self, request: ReadRequest, result: "ReadResult") -> bool:
        """Add records from the request's offset on to the result; False if the store failed."""

    def read_copy(self, request: ReadRequest, result: "ReadResult") -> bool:
        """Add records that Redis has too; False if that has to wait or fails: read Redis."""

    async def find_timestamp(
        self, topic: Topic, partition: int, timestamp: int | None
    ) -> tuple[int, int] | None:
        """Return (timestamp, offset) to scan from for a record at or after a timestamp.

        None as timestamp: for the newest. Returns None if no segment has such a record.
        """


class ReadResult(msgspec.Struct):
    """The result of one read. `entries` fit the bytes asked for, or are the first entry alone."""

    error: ErrorCode
    start: int = -1
    end: int = -1
    epoch: int = 0
    """The log's leader epoch."""
    entries: list[Entry] = []
    size: int = 0
    stable: int | None = None
    """The last stable offset; None for a partition that has never had a transaction."""
    aborted: list[tuple[int, int]] = []
    """Producer id and first offset of aborted transactions; only of a committed read."""
    batches: Sequence[Buffer] = ()
    """Stored batches, in place of entries, if the request takes `batches`: of a segment, or large
    ones of Redis that are not cached."""
    next_offset: int = -1
    """The offset after the batches."""
    record_count: int = 0
    """The records of the batches."""
    epochs: bytes | None = None
    """The rows of the log's leader epochs, None if all its records are of one."""
    diverging: int = -1
    """The end of the epoch that the client read last, if that is below its offset."""
    appended: int = 0
    """Bytes ever appended to the log, just before the entries were read."""

    def set_batches(self, parts: Sequence[Buffer], following: int, records: int, size: int) -> None:
        """Set stored batches in place of entries; `following` is the offset after them."""
        self.batches, self.next_offset, self.record_count = parts, following, records
        self.size = size
        self.end = max(self.end, following)

    @property
    def last_stable(self) -> int:
        """The offset of the oldest record of an open transaction, or the end."""
        if self.stable is None or self.stable < 0:
            return self.end
        return max(self.stable, self.start)


def outside(bounds: ListOffsetsReply, offset: int) -> ReadResult:
    """Return the result of a read at an offset outside the log's state, by its exact bounds."""
    if bounds.error:
        return ReadResult(ErrorCode(bounds.error))
    if not bounds.start <= offset <= bounds.next:
        return ReadResult(ErrorCode.OFFSET_OUT_OF_RANGE)  # as Kafka's, without bounds
    return ReadResult(ErrorCode.NONE, bounds.start, bounds.next, bounds.epoch, [], 0, bounds.stable)


async def drop_uncommitted(
    store: ReadCalls,
    result: ReadResult,
    layout: BaseLayout,
    k: Partition,
    offset: int,
    known_end: int,
) -> None:
    """Drop entries at or above the last stable offset, and list the aborted transactions.

    The log's state was read before the entries. A transaction that began at or above `known_end`,
    the end in that state, may still be open.
    """
    for at, entry in enumerate(result.entries):
        if entry.last >= known_end and layout.is_transactional(entry):
            del result.entries[at:]
            result.end = max(known_end, result.entries[-1].last + 1 if at else 0)
            break
    if result.stable is not None:
        result.entries = [entry for entry in result.entries if entry.last < result.last_stable]
        await _list_aborted(store, result, k, offset)


async def _list_aborted(store: ReadCalls, result: ReadResult, k: Partition, offset: int) -> None:
    """Set `result.aborted` to the aborted transactions with a record among the entries."""
    result.aborted = []
    upper = result.entries[-1].last + 1 if result.entries else offset
    low, more = f"{offset}", bool(result.entries)
    while more:
        flat = await store.submit_command(
            "ZRANGEBYSCORE", k.aborted_txns, low, "+inf", "WITHSCORES", "LIMIT", 0, ABORTED_ROWS
        )
        stable = upper
        for member in flat[::2]:
            producer_id, first, stable = map(int, member.split(b":"))
            if first < upper:
                result.aborted.append((producer_id, first))
        # A transaction aborted later began at or above the last row's `stable`.
        more = len(flat) == 2 * ABORTED_ROWS and stable < upper
        low = "(" + flat[-1].decode() if flat else low
