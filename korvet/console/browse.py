"""Read a page of records from several partitions, filtered, within a limit of work.

Rules
- A page reads at most MAX_SCANNED records, MAX_BYTES and MAX_SECONDS. A cursor continues where it
  ended, also if no record matched: no page reads a whole log.
- Records of several partitions are merged by timestamp; each partition keeps the order of its
  offsets.
- A read takes at least one entry, however large. Records that are too large for a page are named
  and not read: the sparse index of a partition knows the bytes between two of its rows, without the
  records. Entries of foreign clients are not in it.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic

import msgspec

from korvet.base.errors import ErrorCode
from korvet.console.visit import bytes_of
from korvet.library.async_korvet import AsyncKorvet
from korvet.library.values import KorvetError, PartitionOffsets, StoredRecord
from korvet.log.entries_query import LARGEST
from korvet.topics.table import Topic

READ_BYTES = 1 << 18
"""Bytes of a read of one partition."""
MAX_ENTRY_BYTES = 16 << 20
"""Bytes between two rows of the index above which a page does not read them."""
MAX_SCANNED = 20_000
MAX_BYTES = 16 << 20
MAX_SECONDS = 2.0
MAX_STEPS = 50
"""Max steps of the search for the newest records of a partition with segments."""


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
    until: float
    """The time at which the work has to end."""


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


@dataclass(frozen=True, eq=False)
class Search:
    """A search of a topic's records for a page of those that match.

    `prepare` is awaited with the records of a read before they are matched.
    """

    log: AsyncKorvet
    topic: Topic
    limit: int
    matches: Match | None
    prepare: Prepare

    async def read(
        self,
        ends: Mapping[int, PartitionOffsets],
        start: Cursors,
        *,
        reads_all: bool = False,
        before: Browsed | None = None,
    ) -> Browsed:
        """Return up to `limit` records from the cursors on, or all of them.

        `before` is what the page has read already, which counts for the limits of its work.
        """
        parts = [
            _Partition(number, max(offset, ends[number].earliest), ends[number].latest)
            for number, offset in start.items()
        ]
        found: list[StoredRecord] = []
        scanned, size = (before.scanned, before.size) if before else (0, 0)
        until = before.until if before else monotonic() + MAX_SECONDS
        share = max(1 << 14, READ_BYTES // max(1, len(parts)))
        while reads_all or len(found) < self.limit:
            for part in parts:
                while not part.matched and not part.is_done:
                    if scanned >= MAX_SCANNED or size >= MAX_BYTES or monotonic() > until:
                        break
                    rows = await _read(self.log, self.topic.name, part, share)
                    scanned += len(rows)
                    await self.prepare(rows)
                    size += sum(map(bytes_of, rows))
                    part.matched = [row for row in reversed(rows) if _is_shown(row, self.matches)]
            ready = [part for part in parts if part.matched]
            if not ready:
                break
            first = min(ready, key=lambda part: (part.matched[-1].timestamp_ms, part.number))
            found.append(first.matched.pop())
        is_end = all(part.is_done and not part.matched for part in parts)
        return Browsed(
            found,
            {part.number: part.cursor for part in parts},
            scanned,
            size,
            is_end,
            not is_end and len(found) < self.limit,
            until,
        )

    async def read_newest(self, ends: Mapping[int, PartitionOffsets], upper: Cursors) -> Browsed:
        """Return the newest `limit` records below the offsets `upper`, in order of time.

        It reads back in windows, each with three times the records of those before. The cursors of
        the result are the offsets below which the page before this one starts.
        """
        found = Browsed([], dict(upper), 0, 0, False, False, monotonic() + MAX_SECONDS)
        rows: list[StoredRecord] = []
        bounds = {
            number: msgspec.structs.replace(ends[number], latest=upper[number]) for number in ends
        }
        replies = await self.log.store.run_many(
            self.topic.partition(number).lag(offset=offset) for number, offset in upper.items()
        )
        above = dict(zip(upper, (max(0, reply.records) for reply in replies), strict=True))
        count = self.limit
        while True:
            counts = {number: records + count for number, records in above.items()}
            start = await newest(self.log, self.topic, bounds, counts)
            start = {number: min(offset, bounds[number].latest) for number, offset in start.items()}
            found = await self.read(bounds, start, reads_all=True, before=found)
            rows = found.records + rows
            is_first = all(offset <= ends[number].earliest for number, offset in start.items())
            if not found.is_end or is_first or len(rows) >= self.limit or monotonic() > found.until:
                break
            bounds = {
                number: msgspec.structs.replace(
                    ends[number], latest=max(offset, ends[number].earliest)
                )
                for number, offset in start.items()
            }
            count *= 4
            if found.scanned + (count - count // 4) * len(ends) > MAX_SCANNED:
                break
        older = dict(start)
        for row in rows[: -self.limit]:
            older[row.partition] = max(older[row.partition], row.offset + 1)
        is_end = is_first and found.is_end and len(rows) <= self.limit
        return Browsed(
            rows[-self.limit :], older, found.scanned, found.size,
            is_end, not is_end and len(rows) < self.limit, found.until,
        )  # fmt: skip


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
    log: AsyncKorvet,
    topic: Topic,
    ends: Mapping[int, PartitionOffsets],
    counts: Mapping[int, int],
) -> Cursors:
    """Return the offsets from which each partition has about these counts of newest records."""
    states = await log.store.run_many(topic.partition(number).list_offsets() for number in ends)
    skipped = await log.store.run_many(
        topic.partition(number).skip_records(
            offset=state.local_first, records=max(1, state.records - counts[number]), end=state.next
        )
        for number, state in zip(ends, states, strict=True)
    )
    found = {}
    for (number, end), state, reply in zip(ends.items(), states, skipped, strict=True):
        if state.records > counts[number]:
            found[number] = max(reply.offset, end.earliest)
        elif end.earliest >= state.local_first:
            found[number] = end.earliest
        else:
            found[number] = await _search(log, topic, end, counts[number])
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


class LargeRecords(StoredRecord, frozen=True):
    """Records that a page does not read: those from `offset` up to `next_offset`."""

    next_offset: int
    size: int
    """About the bytes of the records."""


async def large_at(
    log: AsyncKorvet, topic: str, partition: int, offset: int
) -> LargeRecords | None:
    """Return the records at the offset if they are too large, else None."""
    keys = log.keys.partition(topic, partition)
    largest, total, end = await log.store.command("HMGET", keys.log, LARGEST, "bytes", "next")
    if int(largest or 0) <= MAX_ENTRY_BYTES:
        return None
    index = keys.index
    below = await log.store.command("ZREVRANGEBYSCORE", index, offset, "-inf", "LIMIT", 0, 1)
    above = await log.store.command("ZRANGEBYSCORE", index, f"({offset}", "+inf", "LIMIT", 0, 1)
    if not below:
        return None  # in a segment, which is read in parts
    next_offset, bytes_above = _parse_row(above[0]) if above else (int(end), int(total))
    size = bytes_above - _parse_row(below[0])[1]
    if size <= MAX_ENTRY_BYTES:
        return None
    return LargeRecords(topic, partition, offset, -1, None, None, (), next_offset, size)


def _parse_row(row: bytes) -> tuple[int, int]:
    """Return the offset and the bytes of a row of the index."""
    offset, _, size, _ = row.split(b":")
    return int(offset), int(size)
