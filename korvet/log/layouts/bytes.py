"""The `bytes` layout: an offset is a byte position, as in the Kafka 0.7 protocol.

    set      messages of a Kafka 0.7 producer, as it sent them
    batch    instead: a record batch of a newer client; a 0.7 client reads its records as messages
    count    the offsets the entry takes: its size in bytes for a 0.7 client
    tail     how many of those are above the last record's own offset

Rules
- What a 0.7 client reads of an entry never changes, and is exactly `count` bytes long: offsets
  depend on it.
- A 0.7 message has no timestamp: its records have the time of the append.
"""

import struct
from collections.abc import Collection, Sequence
from typing import NamedTuple

from korvet.log.entry import Entry
from korvet.log.layouts.base import Run
from korvet.log.layouts.batch import BatchLayout, batch_of
from korvet.scripts.call import Arg, Call
from korvet.scripts.calls.partition import AppendReply
from korvet.topics.table import Topic
from korvet.wire import batch_builder, message_sets_v07, record_entries, records
from korvet.wire.records import BadBatch, BatchHeader, Buffer, Record

_SET = b"set"


class BytesLayout(BatchLayout):
    """A Kafka 0.7 message set or a record batch per entry; offsets are byte positions."""

    takes_transactions = False
    has_tail = True

    def _fields(self, topic: Topic, batch: Buffer, header: BatchHeader) -> Sequence[Arg]:
        limit = topic.policy.max_opened_bytes
        sizes = message_sets_v07.sizes(records.decode_produced(batch, limit=limit))
        span = sum(sizes)
        return (
            span,
            8,
            b"batch",
            batch,
            b"count",
            span,
            b"max.timestamp",
            header.max_timestamp,
            b"tail",
            sizes[-1] - 1,
        )

    def parse_entry(
        self, last: int, milliseconds: int, fields: list[bytes], decompress: bool
    ) -> Entry | None:
        batch, count = batch_of(fields)
        if batch is None:
            return None
        return Entry(last - count + 1, last, fields, milliseconds, sum(map(len, fields)))

    def last_record(self, entry: Entry) -> int:
        return entry.last - tail_of(entry.fields)

    def transaction_of(self, entry: Entry) -> tuple[int, bool]:
        return -1, False

    def is_transactional(self, entry: Entry) -> bool:
        return False

    def records_of(self, topic: Topic, entry: Entry) -> list[Record]:
        return records_of(entry.first, entry.fields)

    def count_records(self, entries: Run) -> int:
        """Return the number of entries: a 0.7 set does not say how many messages it has."""
        return len(entries)

    def has_record_from(self, topic: Topic, entry: Entry, offset: int) -> bool:
        return True

    def batches_of(
        self, entries: Run, offset: int, epoch: int, codec: int, *, transactions: bool
    ) -> list[Buffer]:
        """Return batches without records below `offset`, which may be inside a message."""
        built = [
            batch_from(offset, entry.first, entry.last, entry.fields, epoch, codec)
            for entry in entries
        ]
        return [batch for batch in built if batch is not None]

    def append_timed(self, entries: Run, rows: Sequence[Record]) -> Collection[int]:
        return ()


class ByteEntry(NamedTuple):
    """The fields of an entry, parsed."""

    payload: bytes
    is_set: bool
    append_time: int | None


def append_set(topic: Topic, partition: int, data: Buffer, limit: int) -> Call[AppendReply]:
    """Build the call that appends a set of 0.7 messages, which open `limit` bytes at most.

    Raises BadBatch.
    """
    found = message_sets_v07.pieces(data, limit=limit, max_bytes=topic.policy.max_message_bytes)
    fields: list[Arg] = []
    for piece in found:
        size = len(piece.raw)
        fields += (size, 6, _SET, piece.raw, b"count", size, b"tail", piece.tail)
    return topic.partition(partition).append(
        count=sum(piece.records for piece in found),
        size=sum(len(piece.raw) for piece in found),
        max_timestamp=-1,
        stamp=1,
        fields=fields,
    )


def parse_fields(fields: Sequence[bytes]) -> ByteEntry:
    """Parse the fields of an entry."""
    at = 2 if fields[0] == b"append.time" else 0
    return ByteEntry(fields[at + 1], fields[at] == _SET, record_entries.append_time_of(fields))


def tail_of(fields: Sequence[bytes]) -> int:
    """Return how many of the entry's offsets are above its last record's own."""
    if len(fields) < 4 or fields[-2] != b"tail" or not fields[-1].isdigit():
        return 0
    return int(fields[-1]) if len(fields[-1]) < 17 else 0


def raw_of(fields: Sequence[bytes]) -> Buffer:
    """Return the entry as the bytes a 0.7 client reads."""
    found = parse_fields(fields)
    if found.is_set:
        return found.payload
    return message_sets_v07.build(_records(found.payload))


def _records(batch: bytes) -> list[Record]:
    """Return a batch's records; none if it is a foreign entry and cannot be decoded."""
    try:
        return records.records_of(batch)
    except BadBatch:
        return []


def records_of(first: int, fields: Sequence[bytes]) -> list[Record]:
    """Return the records of the entry whose first offset is `first`, at their own offsets.

    Empty for a foreign entry whose messages cannot be parsed.
    """
    found = parse_fields(fields)
    if found.is_set:
        try:
            return message_sets_v07.records_of(found.payload, first, found.append_time or 0)
        except (ValueError, IndexError, struct.error):
            return []
    out: list[Record] = []
    for _, timestamp, key, value, headers in _records(found.payload):
        time = timestamp if found.append_time is None else found.append_time
        out.append((first, time, key, value, headers))
        first += message_sets_v07.OVERHEAD + len(value or b"")
    return out


def batch_from(
    offset: int, first: int, last: int, fields: Sequence[bytes], epoch: int, codec: int
) -> bytearray | None:
    """Build one record batch that ends at `last`, of the entry's records from `offset` on.

    None if there are none.
    """
    found = [record for record in records_of(first, fields) if record[0] >= offset]
    if not found:
        return None
    batch = batch_builder.build(
        found, codec=codec, append_time=record_entries.append_time_of(fields), leader_epoch=epoch
    )
    batch_builder.extend_to(batch, last)
    return batch
