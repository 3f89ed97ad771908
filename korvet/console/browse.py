"""Read a page of records from several partitions, filtered, within a limit of work.

Rules
- A page reads at most MAX_SCANNED records, MAX_BYTES and MAX_SECONDS. A cursor continues where it
  ended, also if no record matched: no page reads a whole log.
- Records of several partitions are merged by timestamp; each partition keeps the order of its
  offsets.
- A read takes at least one entry. Records that are too large are named and not read.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import monotonic

import msgspec

from korvet.base.errors import ErrorCode
from korvet.console.large import LargeRecords, large_at
from korvet.console.visit import bytes_of
from korvet.library.async_korvet import AsyncKorvet
from korvet.library.values import KorvetError, PartitionOffsets, StoredRecord
from korvet.topics.table import Topic

MAX_SCANNED = 20_000
MAX_BYTES = 16 << 20
MAX_SECONDS = 2.0
MAX_STEPS = 50
"""Max steps of the search for the newest records of a partition with segments."""
READ_BYTES = 1 << 18
"""Bytes of a read of one partition."""

Cursors = dict[int, int]
"""The next offset of each partition."""
Match = Callable[[StoredRecord], bool]
Prepare = Callable[[Sequence[StoredRecord]], Awaitable[None]]


class Browsed(msgspec.Struct, frozen=True):
    """Records that matched, and where to continue."""

    records: list[StoredRecord]
    cursors: Cursors
    scanned: int
    size: int
    """Bytes of the records that were read."""
    is_end: bool
    """Whether there are no records above the cursors."""
    is_limited: bool
    """Whether the limit of work ended the page."""


class _Partition:
    """The part of a partition that was read and not yet shown."""

    def __init__(self, number: int, offset: int, end: int) -> None:
        self.number = number
        self.next = offset
        self.end = end
        self.matched: list[StoredRecord] = []
        """Records that matched, the next one last."""

    @property
    def is_done(self) -> bool:
        return self.next >= self.end

    @property
    def cursor(self) -> int:
        return self.matched[-1].offset if self.matched else self.next


async def browse(
    log: AsyncKorvet,
    topic: str,
    ends: Mapping[int, PartitionOffsets],
    start: Cursors,
    limit: int,
    matches: Match | None = None,
    *,
    is_newest: bool = False,
    prepare: Prepare,
) -> Browsed:
    """Return up to `limit` records from the cursors on, the first ones or the newest.

    `prepare` is awaited with the records of a read before they are matched.
    """
    parts = [
        _Partition(number, max(offset, ends[number].earliest), ends[number].latest)
        for number, offset in start.items()
    ]
    found: list[StoredRecord] = []
    scanned, size, until = 0, 0, monotonic() + MAX_SECONDS
    share = max(1 << 14, READ_BYTES // max(1, len(parts)))
    while is_newest or len(found) < limit:
        for part in parts:
            while not part.matched and not part.is_done:
                if scanned >= MAX_SCANNED or size >= MAX_BYTES or monotonic() > until:
                    break
                rows = await _read(log, topic, part, share)
                scanned += len(rows)
                await prepare(rows)
                size += sum(map(bytes_of, rows))
                part.matched = [row for row in reversed(rows) if _is_shown(row, matches)]
        ready = [part for part in parts if part.matched]
        if not ready:
            break
        first = min(ready, key=lambda part: (part.matched[-1].timestamp_ms, part.number))
        found.append(first.matched.pop())
    is_end = all(part.is_done and not part.matched for part in parts)
    return Browsed(
        found[-limit:],
        {part.number: part.cursor for part in parts},
        scanned,
        size,
        is_end,
        not is_end and len(found) < limit,
    )


def _is_shown(row: StoredRecord, matches: Match | None) -> bool:
    """Return whether the record matches; one that is not read may match."""
    return matches is None or isinstance(row, LargeRecords) or matches(row)


async def _read(
    log: AsyncKorvet, topic: str, part: _Partition, max_bytes: int
) -> list[StoredRecord]:
    """Read the next records of a partition, and move its offset."""
    large = await large_at(log, topic, part.number, part.next)
    if large is not None:
        part.next = min(large.next_offset, part.end)
        return [large]
    try:
        got = await log.fetch(topic, part.number, part.next, max_bytes=max_bytes)
    except KorvetError as error:
        if error.error is not ErrorCode.OFFSET_OUT_OF_RANGE:
            raise
        part.next = part.end  # deleted meanwhile
        return []
    rows = [row for row in got.records if row.offset < part.end]
    part.next = got.next_offset if got.next_offset > part.next else part.end
    return rows


async def newest(
    log: AsyncKorvet, topic: Topic, ends: Mapping[int, PartitionOffsets], count: int
) -> Cursors:
    """Return the offsets from which each partition has about its newest `count` records."""
    states = await log.store.run_many(topic.partition(number).list_offsets() for number in ends)
    skipped = await log.store.run_many(
        topic.partition(number).skip_records(
            offset=state.local_first, records=max(1, state.records - count), end=state.next
        )
        for number, state in zip(ends, states, strict=True)
    )
    found = {}
    for (number, end), state, reply in zip(ends.items(), states, skipped, strict=True):
        if state.records > count:
            found[number] = max(reply.offset, end.earliest)
        elif end.earliest >= state.local_first:
            found[number] = end.earliest
        else:
            found[number] = await _search(log, topic, end, count)
    return found


async def _search(log: AsyncKorvet, topic: Topic, end: PartitionOffsets, count: int) -> int:
    """Return an offset with at least `count` records from it on, some of them in segments."""
    low, high = end.earliest, end.latest
    for _ in range(MAX_STEPS):
        middle = (low + high) // 2
        (reply,) = await log.store.run_many([topic.partition(end.partition).lag(offset=middle)])
        if reply.records < count:
            high = middle
        else:
            low = middle
        if low >= high - 1 or count <= reply.records <= 2 * count:
            break
    return low
