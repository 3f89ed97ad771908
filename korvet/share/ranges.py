"""Describe what a read of the log found, for share.acquire: ranges of offsets with records.

Rules
- In layout `batch` a range is a batch, or adjacent batches that the member takes together. In
  layout `record` it is a run of adjacent records.
- Markers hold no record. Under read_committed records of aborted transactions do not count either:
  a share group never gets them.
"""

from collections.abc import Iterable, Sequence
from hashlib import blake2b

from korvet.log.entry import Entry
from korvet.log.layouts import layout_of, records_in, with_records
from korvet.log.read_result import ReadResult
from korvet.topics.table import Topic

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
