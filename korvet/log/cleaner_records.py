"""Decode the records that the log cleaner compares, and rewrite batches with those retained."""

import hashlib

from korvet.log.entry import Entry
from korvet.log.layouts import layout_of
from korvet.log.read_result import ReadResult
from korvet.log.records_in import with_records
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


def entries_with_records(topic: Topic, found: ReadResult) -> list[tuple[Entry, list[Record]]]:
    """Return the slice's entries, each with its records.

    Markers and entries of aborted transactions have none.
    """
    return [
        (entry, _records_or_all(topic, entry) if has_records else [])
        for entry, has_records in with_records(layout_of(topic), found.entries, found.aborted)
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
