"""The read interface of a layout: records and transactions of a stream's entries."""

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Collection, Sequence
from typing import ClassVar

from korvet.log.entry import Entry
from korvet.topics.table import Topic
from korvet.wire import record_entries
from korvet.wire.records import Buffer, Record

Run = Sequence[Entry]
"""Consecutive entries of one partition, in the order of their offsets."""


class BaseLayout(ABC):
    """A way in which the entries of a topic's streams hold records."""

    holds_batches: ClassVar[bool]
    """True: an entry is a producer's batch, sent as stored. False: an entry is one record, which
    any Redis client may XADD."""
    has_tail: ClassVar[bool] = False
    """Whether an entry takes offsets above its last record's own."""

    @abstractmethod
    def parse_entry(
        self, last: int, milliseconds: int, fields: list[bytes], decompress: bool
    ) -> Entry | None:
        """Return the entry whose last offset is `last`; None if its fields hold no records.

        `decompress` replaces values that are compressed at rest; sizes then count as sent.
        """

    def last_record(self, entry: Entry) -> int:
        """Return the offset of the entry's last record."""
        return entry.last

    @abstractmethod
    def transaction_of(self, entry: Entry) -> tuple[int, bool]:
        """Return the producer id of the entry's transaction, or -1, and whether it is a marker."""

    @abstractmethod
    def is_transactional(self, entry: Entry) -> bool:
        """Return whether the entry belongs to a transaction, open or ended."""

    @abstractmethod
    def records_of(self, topic: Topic, entry: Entry) -> list[Record]:
        """Return the records of an entry that is no marker, at their own offsets."""

    def count_records(self, entries: Run) -> int:
        """Return how many records the entries hold, by their offsets."""
        return sum(entry.last - entry.first + 1 for entry in entries)

    def has_record_from(self, topic: Topic, entry: Entry, offset: int) -> bool:
        """Return whether the entry holds a record at or above the offset."""
        return not self.transaction_of(entry)[1]

    @abstractmethod
    def timestamps_of(self, topic: Topic, entry: Entry, least: int) -> list[tuple[int, int]]:
        """Return (timestamp, offset) of each record; empty if none is as new as `least`."""

    @abstractmethod
    def batches_of(
        self, entries: Run, offset: int, epoch: int, codec: int, *, transactions: bool
    ) -> list[Buffer]:
        """Return the entries as record batches, with the records from `offset` on.

        Batches that are built here use `codec`. `transactions`: entries may belong to some.
        """

    def append_timed(self, entries: Run, rows: Sequence[Record]) -> Collection[int]:
        """Return the offsets of those records whose timestamp is the time of their append."""
        if not any_append_time(entries):
            return ()
        # The `count` of a foreign entry may be lower than its number of records.
        ends = [entry.last for entry in entries[:-1]]
        times = record_entries.append_time_of
        return {
            offset
            for offset, *_ in rows
            if times(entries[bisect_left(ends, offset)].fields) is not None
        }


def any_append_time(entries: Run) -> bool:
    """Return whether an entry carries the time of its append."""
    return bool([entry for entry in entries if entry.fields[0] == b"append.time"])
