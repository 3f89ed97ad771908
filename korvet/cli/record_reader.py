"""Read the records of a topic's partitions in order, between positions, for a group or not."""

import sys
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any, Protocol

import typer

from korvet.library.values import Fetched, LostRecords, StoredRecord
from korvet.log.position import Position

_COMMIT_S = 1.0
"""Longest time between the printing of a record and the commit of its group."""


class ReadableLog(Protocol):
    """The log in Redis, or that of brokers."""

    async def offsets(self, topic: str) -> Sequence[Any]: ...
    async def find_offset(self, topic: str, partition: int, position: Position) -> int: ...
    async def committed(self, group: str) -> Sequence[Any]: ...
    async def commit(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None: ...
    async def fetch(
        self, topic: str, partition: int, offset: int, *, committed: bool = False
    ) -> Fetched: ...


class Reader:
    """The next offset of each partition, and how many records are still to be written.

    `stops` are the offsets before which the reading of a partition ends; without one it ends at
    the end of the log. With `group`, what was written is committed.
    """

    def __init__(
        self,
        log: ReadableLog,
        topic: str,
        write: Callable[[StoredRecord], None],
        *,
        max_records: int | None = None,
        matches: Callable[[StoredRecord], bool] = lambda record: True,
        committed: bool = False,
        group: str | None = None,
    ) -> None:
        self._log = log
        self._topic = topic
        self._write = write
        self._left = max_records
        self._matches = matches
        self._committed = committed
        self._group = group
        self._offsets: dict[int, int] = {}
        self._stops: Mapping[int, int] = {}
        self._start: Position | None = None
        self._in_group: dict[int, int] = {}
        self._commit_at = monotonic() + _COMMIT_S
        self.reading = 0
        """The partition that is read."""
        self.records = 0
        """How many records the partitions hold."""

    @property
    def is_done(self) -> bool:
        """Return whether as many records were written as wanted."""
        return self._left == 0

    async def seek(self, numbers: list[int], start: Position | None, stop: Position | None) -> None:
        """Set where the reading of each partition begins and ends.

        Without a start it is what the group has committed, else the earliest offset.
        """
        self._start = start
        committed = await self._committed_offsets() if self._group and start is None else {}
        for ends in await self._log.offsets(self._topic):
            number = ends.partition
            if number not in numbers:
                continue
            self.records += ends.records
            self._offsets[number] = await self._find(
                number, committed.get(number, "earliest") if start is None else start
            )
        if stop is not None:
            self._stops = {
                number: await self._log.find_offset(self._topic, number, stop) for number in numbers
            }
        self._in_group = dict(committed)

    async def _committed_offsets(self) -> dict[int, int]:
        rows = await self._log.committed(self._group or "")
        return {row.partition: row.offset for row in rows if row.topic == self._topic}

    async def _find(self, number: int, position: Position) -> int:
        if isinstance(position, int):
            return position  # an offset out of range is reported when it is read
        return await self._log.find_offset(self._topic, number, position)

    async def read_to_end(self, advance: Callable[[int], None]) -> None:
        """Write the records that are there now, as many as wanted."""
        for number in self._offsets:
            self.reading = number
            while not self.is_done and await self._read(number, advance):
                if monotonic() >= self._commit_at:
                    await self.commit()
        sys.stdout.flush()

    async def commit(self) -> None:
        """Commit for the group what was written and flushed."""
        sys.stdout.flush()
        self._commit_at = monotonic() + _COMMIT_S
        if self._group is None:
            return
        moved = {
            (self._topic, number): offset
            for number, offset in self._offsets.items()
            if self._in_group.get(number) != offset
        }
        if moved:
            await self._log.commit(self._group, moved)
            self._in_group.update(self._offsets)

    async def _read(self, number: int, advance: Callable[[int], None]) -> bool:
        """Write the next records of a partition; return whether there may be more."""
        offset, stop = self._offsets[number], self._stops.get(number)
        if stop is not None and offset >= stop:
            return False
        try:
            found = await self._log.fetch(self._topic, number, offset, committed=self._committed)
        except LostRecords as lost:
            if offset == self._start:
                raise
            typer.echo(str(lost), err=True)
            self._offsets[number] = lost.first
            return True
        following = found.next_offset
        for count, record in enumerate(found.records):
            if self.is_done or (stop is not None and record.offset >= stop):
                following = record.offset
                advance(count)
                break
            if self._matches(record):
                self._write(record)
                if self._left is not None:
                    self._left -= 1
        else:
            advance(len(found.records))
        self._offsets[number] = following
        return following != offset

    @property
    def positions(self) -> Mapping[int, int]:
        """The next offsets by partition."""
        return self._offsets
