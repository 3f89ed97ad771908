"""Read a topic's records between positions, then those that arrive, and commit for a group."""

import os
import stat
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush, merge
from itertools import islice
from time import monotonic
from typing import NamedTuple, Self

import typer

from korvet.base.errors import ErrorCode
from korvet.cli.broker_log import FETCH_BYTES, BrokerLog, Log
from korvet.cli.table_output import progress
from korvet.config.broker_config import StartError
from korvet.library.values import Fetched, KorvetError, LostRecords, StoredRecord
from korvet.log.position import Position
from korvet.store.notifications import Notifier

_COMMIT_S = 1.0
"""Longest time between the printing of a record and the commit of its group."""
_RECHECK_S = 0.2
"""Longest wait for a message about new records before the log is read again."""
_GROWTH, _FAST_GROWTH, _CUT = 2, 16, 4
"""Factors of a step back after one with records, after one without, and after one too long."""


MEMORY = 64 << 20
"""Bytes of records that are read ahead, to merge partitions by time."""
_SHARE = 16 << 10
"""Least bytes of a partition among them: fewer would read each batch many times."""
_RECORD_BYTES = 500
"""What Python needs for a record without key and value."""


class Newest(NamedTuple):
    """The newest records: of each partition, or of all together by their timestamps."""

    limit: int
    is_total: bool


def size_of(record: StoredRecord) -> int:
    """Return about the bytes that a record needs in memory."""
    headers = sum(_RECORD_BYTES + len(value or b"") for _, value in record.headers)
    return _RECORD_BYTES + len(record.key or b"") + len(record.value or b"") + headers


def _writes_file() -> bool:
    """Return whether stdout is a file: anything else may show the records on the terminal, where
    a progress bar would overwrite them."""
    try:
        return stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode)
    except OSError:
        return False


@dataclass(eq=False, repr=False)
class Reader:
    """The next offset of each partition, and how many records are still to be written.

    Without a group nothing is committed.
    """

    log: Log
    topic: str
    write: Callable[[StoredRecord], None]
    matches: Callable[[StoredRecord], bool]
    left: int | None
    """How many records are still wanted, None for all."""
    committed: bool
    group: str | None

    def __post_init__(self) -> None:
        self.offsets: dict[int, int] = {}
        self._stops: Mapping[int, int] = {}
        """The offsets before which a partition ends; by default its end is that of the log."""
        self._start: Position | Newest | None = None
        self._in_group: dict[int, int] = {}
        self._commit_at = monotonic() + _COMMIT_S
        self.reading = 0
        """The partition that is read."""
        self.records = 0
        """How many records the partitions hold."""

    @property
    def is_done(self) -> bool:
        """Return whether as many records were written as wanted."""
        return self.left == 0

    async def seek(
        self, numbers: list[int], start: Position | Newest | None, stop: Position | None
    ) -> None:
        """Set where the reading of each partition begins and ends.

        Without a start it is what the group has committed, else the earliest offset.
        """
        self._start = start
        committed = await self._committed_offsets() if self.group and start is None else {}
        if stop is not None:
            self._stops = {
                number: await self.log.find_offset(self.topic, number, stop) for number in numbers
            }
        newest: list[list[StoredRecord]] = []
        for ends in await self.log.offsets(self.topic):
            number = ends.partition
            if number not in numbers:
                continue
            self.records += ends.records
            if isinstance(start, Newest):
                end = min(ends.latest, self._stops.get(number, ends.latest))
                newest.append(await self._newest(number, ends.earliest, end, start.limit))
                self.offsets[number] = end
                continue
            self.offsets[number] = await self._find(
                number, committed.get(number, "earliest") if start is None else start
            )
        if isinstance(start, Newest):
            backwards = map(reversed, newest)
            chosen = merge(*backwards, key=lambda record: record.timestamp_ms, reverse=True)
            for record in islice(chosen, start.limit if start.is_total else None):
                self.offsets[record.partition] = record.offset
        self._in_group = dict(committed)

    async def _newest(self, number: int, first: int, end: int, count: int) -> list[StoredRecord]:
        """Return the newest records of a partition before `end`, without keys and values.

        Offsets may have gaps of any length. The search goes back in steps that one fetch reads:
        longer ones after a step that it reads, shorter ones after one that it does not.
        """
        found: list[StoredRecord] = []
        step = count
        while end > first and len(found) < count:
            start = max(first, end - step)
            try:
                read = await self.log.fetch(self.topic, number, start, committed=self.committed)
            except LostRecords as lost:
                read = await self.log.fetch(
                    self.topic, number, lost.first, committed=self.committed
                )
            if start < read.next_offset < end and end - start > 1:
                step = max(1, (end - start) // _CUT)
                continue
            some = [
                StoredRecord(self.topic, number, each.offset, each.timestamp_ms, None, None, [])
                for each in read.records
                if start <= each.offset < end
            ]
            found = (some + found)[-count:]
            end, step = start, step * (_GROWTH if some else _FAST_GROWTH)
        return found

    async def _committed_offsets(self) -> dict[int, int]:
        rows = await self.log.committed(self.group or "")
        return {row.partition: row.offset for row in rows if row.topic == self.topic}

    async def _find(self, number: int, position: Position) -> int:
        if isinstance(position, int):
            return position  # an offset out of range is reported when it is read
        return await self.log.find_offset(self.topic, number, position)

    async def run(self, followed: list[int] | None) -> None:
        """Write the records to the end, then those that arrive in partitions to be followed."""
        try:
            with progress(f"from {self.topic}", self.records, shown=_writes_file()) as advance:
                await self._explained(advance)
            if followed is not None:
                await self._follow(followed)
        except BrokenPipeError:
            raise  # what the reader of our output has not read is not committed
        except BaseException:
            await self.commit()
            raise
        await self.commit()

    async def _follow(self, numbers: list[int]) -> None:
        log = self.log

        async def read(wait: Callable[[], Awaitable[object]]) -> None:
            while not self.is_done:
                await self._explained(lambda count: None)
                await self.commit()
                await wait()

        if isinstance(log, BrokerLog):
            await read(lambda: log.wait(self.topic, self.offsets))
            return
        channels = [log.keys.partition(self.topic, number).channel for number in numbers]
        async with await Notifier.connect(log.url) as notifier, notifier.listen(channels) as wake:
            await read(lambda: wake.wait(_RECHECK_S))

    async def _explained(self, advance: Callable[[int], None]) -> None:
        """Read to the end. Raises StartError with the offsets of a partition that has others."""
        try:
            await self._read_to_end(advance)
        except KorvetError as error:
            if error.error is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            ends, at = (
                (await self.log.offsets(self.topic))[self.reading],
                self.offsets[self.reading],
            )
            if isinstance(error, LostRecords) and at <= ends.latest:
                raise StartError(str(error)) from None
            raise StartError(
                f"Partition {self.reading} of {self.topic} cannot be read from offset {at}: it "
                f"holds {ends.earliest} to {ends.latest}."
            ) from None

    async def _read_to_end(self, advance: Callable[[int], None]) -> None:
        """Write the records that are there now, as many as wanted, merged by their timestamps.

        Of the next records of all partitions the one with the lowest timestamp is written. If what
        was read ahead fills the memory, the rest of the partitions wait until some is written.
        """
        unread = deque(self.offsets)
        ahead: dict[int, _Ahead] = {}
        heads: list[tuple[int, int]] = []
        size = 0
        limit = max(MEMORY // max(len(self.offsets), 1), _SHARE)
        while not self.is_done and (unread or heads):
            while unread and size < MEMORY:
                number = unread.popleft()
                if (found := await self._read(number, limit)) is not None:
                    ahead[number] = found
                    size += found.size
                    heappush(heads, (found.timestamp, number))
            if not heads:
                break
            _, number = heappop(heads)
            self._write(number, ahead[number], heads[0] if heads else None, advance)
            if ahead[number].records:
                heappush(heads, (ahead[number].timestamp, number))
            else:
                size -= ahead.pop(number).size
                unread.appendleft(number)
            if monotonic() >= self._commit_at:
                await self.commit()
        sys.stdout.flush()

    def _write(
        self,
        number: int,
        ahead: "_Ahead",
        next_head: tuple[int, int] | None,
        advance: Callable[[int], None],
    ) -> None:
        """Write a partition's records until another partition has one that is older."""
        records = ahead.records
        before = len(records)
        while records and not self.is_done:
            record = records[-1]
            if next_head is not None and (record.timestamp_ms, number) > next_head:
                break
            records.pop()
            if self.matches(record):
                self.write(record)
                if self.left is not None:
                    self.left -= 1
        self.offsets[number] = records[-1].offset if records else ahead.following
        advance(before - len(records))

    async def commit(self) -> None:
        """Commit for the group what was written and flushed."""
        sys.stdout.flush()
        self._commit_at = monotonic() + _COMMIT_S
        if self.group is None:
            return
        moved = {
            (self.topic, number): offset
            for number, offset in self.offsets.items()
            if self._in_group.get(number) != offset
        }
        if moved:
            await self.log.commit(self.group, moved)
            self._in_group.update(self.offsets)

    async def _read(self, number: int, limit: int) -> "_Ahead | None":
        """Read the next records of a partition, of `limit` bytes or one; None at its end."""
        stop = self._stops.get(number)
        self.reading = number
        while stop is None or self.offsets[number] < stop:
            offset = self.offsets[number]
            try:
                found = await self.log.fetch(
                    self.topic,
                    number,
                    offset,
                    max_bytes=min(limit, FETCH_BYTES),
                    committed=self.committed,
                )
            except LostRecords as lost:
                if offset == self._start:
                    raise
                typer.echo(str(lost), err=True)
                self.offsets[number] = lost.first
                continue
            ahead = _Ahead.of(found, limit, stop)
            if ahead.records:
                return ahead
            if ahead.following == offset:
                break
            self.offsets[number] = ahead.following
        return None


class _Ahead(NamedTuple):
    """Records of a partition that were read and not written, the next one last."""

    records: list[StoredRecord]
    following: int
    """The offset after them."""
    size: int
    """Bytes of all that were read."""

    @property
    def timestamp(self) -> int:
        """The timestamp of the next record."""
        return self.records[-1].timestamp_ms

    @classmethod
    def of(cls, fetched: Fetched, limit: int, stop: int | None) -> Self:
        """Return the first records that were fetched, of `limit` bytes or one, before `stop`."""
        chosen: list[StoredRecord] = []
        size = 0
        for record in fetched.records:
            if (stop is not None and record.offset >= stop) or size >= limit:
                return cls(chosen[::-1], record.offset, size)
            chosen.append(record)
            size += size_of(record)
        return cls(chosen[::-1], fetched.next_offset, size)
