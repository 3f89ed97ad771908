"""Counters of a cleaning pass, and the sparse index of the compacted copy."""

import hashlib

import msgspec

from korvet.log.entry import Entry
from korvet.log.layouts import layout_of
from korvet.log.read_result import ReadResult
from korvet.log.records_in import with_records
from korvet.scripts.calls.partition import CleanBeginReply
from korvet.topics.table import Topic
from korvet.wire import batch_builder
from korvet.wire.records import BadBatch, Record

LONG_KEY = 32
"""Bytes above which a key is stored as its hash."""

UNREADABLE = b"this batch cannot be read"
"""The key that represents a batch that cannot be decoded; compared by identity."""


def key_mark(key: bytes) -> bytes:
    """Return the key, or its hash if it is longer than LONG_KEY."""
    if len(key) <= LONG_KEY:
        return key
    return hashlib.blake2b(key, digest_size=LONG_KEY + 1).digest()


def entries_with_records(topic: Topic, result: ReadResult) -> list[tuple[Entry, list[Record]]]:
    """Return the slice's entries, each with its records.

    Markers and entries of aborted transactions have none.
    """
    return [
        (entry, _records_or_all(topic, entry) if has_records else [])
        for entry, has_records in with_records(layout_of(topic), result.entries, result.aborted)
    ]


def _records_or_all(topic: Topic, entry: Entry) -> list[Record]:
    """Return the entry's records.

    A batch that cannot be decoded has one UNREADABLE record, which always stays: so the batch does.
    """
    try:
        return layout_of(topic).records_of(topic, entry)
    except BadBatch:
        return [(entry.last, -1, UNREADABLE, b"", [])]


def rewrite_batch(entry: Entry, retained: list[Record]) -> list[bytes]:
    """Return a batch entry's fields with only these records, over the same offsets."""
    fields = list(entry.fields)
    at = fields.index(b"batch") + 1
    fields[at] = bytes(batch_builder.retain_records(fields[at], entry.first, entry.last, retained))
    return fields


INDEX_BYTES = 65536
MAX_ROWS = 8000
"""Max rows: one script writes them all. In a larger copy they are further apart."""


class Outcome(msgspec.Struct):
    """Result of a pass over the entries below `limit`."""

    limit: int = -1
    kept: int = 0
    removed: int = 0
    size: int = 0
    records: int = 0
    tombstones: bool = False
    rows: list[str] = []


class CleanedIndex:
    """Sparse index of the compacted copy, built while entries are added."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, int, int, int]] = []
        self._step = INDEX_BYTES
        self._indexed = -INDEX_BYTES
        self._newest = -1

    def note(self, outcome: Outcome, offset: int, newest: int, size: int, count: int) -> None:
        """Count an entry that stays and begins at `offset`; add an index row if one is due."""
        if outcome.size - self._indexed >= self._step:
            if len(self._rows) == MAX_ROWS:
                self._rows, self._step = self._rows[::2], 2 * self._step
            self._rows.append((offset, self._newest, outcome.size, outcome.records))
            self._indexed = outcome.size
        self._newest = max(self._newest, newest)
        outcome.size += size
        outcome.records += count
        outcome.kept += 1

    def rows(self, start_bytes: int, start_records: int, plan: CleanBeginReply) -> list[str]:
        """Return the index rows in the format of lua/lib/index.lua.

        Values are capped by the log's counters at the limit, which do not count foreign entries:
        rows must never decrease.
        """
        return [
            f"{offset}:{min(newest, plan.newest)}:{min(start_bytes + size, plan.bytes)}"
            f":{min(start_records + count, plan.records)}"
            for offset, newest, size, count in self._rows
        ]
