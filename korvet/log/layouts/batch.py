"""The `batch` layout: an entry is a record batch, byte for byte as its producer sent it.

    append.time     only with message.timestamp.type=LogAppendTime: ms as decimal text
    batch           the record batch
    count           how many offsets it takes
    max.timestamp   ms as decimal text

The entry's id is that of the batch's last offset.
"""

from collections.abc import Sequence

from korvet.log.entry import Entry
from korvet.log.layouts.base import BaseLayout, Run
from korvet.scripts.call import Arg, Call
from korvet.scripts.calls.partition import AppendReply
from korvet.topics.table import Topic
from korvet.wire import batch_builder, compression, record_entries, records
from korvet.wire.records import BadBatch, BatchHeader, Buffer, Record

COPIED = 8 * 1024
"""Bytes below which a batch is copied out of its request: cheaper than a view of it."""
_PAYLOADS = (b"batch", b"set")


def batch_of(fields: Sequence[bytes]) -> tuple[bytes | None, int]:
    """Return the batch or set of an entry and how many offsets it takes.

    (None, 0) if the fields are those of another client, and hold neither.
    """
    at = 2 if fields[0] == b"append.time" else 0
    if len(fields) < at + 4 or fields[at] not in _PAYLOADS or fields[at + 2] != b"count":
        return None, 0
    batch, count = fields[at + 1], fields[at + 3]
    if fields[at] == b"batch":
        ours = len(batch) >= records.HEADER_SIZE and count.isdigit() and len(count) < 17
    else:
        ours = len(batch) > 0 and count == b"%d" % len(batch)
    return (batch, int(count)) if ours else (None, 0)


class BatchLayout(BaseLayout):
    """The layout with a record batch per entry."""

    takes_transactions = True
    holds_batches = True

    def append_batch(
        self,
        topic: Topic,
        partition: int,
        batch: Buffer,
        header: BatchHeader,
        transaction: int = -1,
    ) -> Call[AppendReply]:
        """Return the call that appends this batch."""
        producer_id, producer_epoch, base_sequence = header.producer
        return topic.partition(partition).append(
            count=header.last_offset_delta + 1,
            size=len(batch),
            max_timestamp=header.max_timestamp,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            transaction=transaction,
            stamp=int(topic.policy.log_append_time),
            fields=self._fields(topic, batch, header),
        )

    def _fields(self, topic: Topic, batch: Buffer, header: BatchHeader) -> Sequence[Arg]:
        """Return log.append's `fields` for the entry."""
        return (bytes(batch) if len(batch) < COPIED else batch,)

    def append_records(
        self, topic: Topic, partition: int, batch_records: list[Record]
    ) -> Call[AppendReply]:
        """Return the call that appends these records as one batch."""
        codec = compression.BY_NAME.get(topic.policy.compression_type, compression.NONE)
        batch = batch_builder.build(batch_records, codec=codec)
        return self.append_batch(topic, partition, batch, records.read_header(batch))

    def parse_entry(
        self, last: int, milliseconds: int, fields: list[bytes], decompress: bool
    ) -> Entry | None:
        batch, count = batch_of(fields)
        if batch is None or len(batch) < records.HEADER_SIZE:
            return None
        return Entry(last - count + 1, last, fields, milliseconds, sum(map(len, fields)))

    def transaction_of(self, entry: Entry) -> tuple[int, bool]:
        batch = _payload(entry)
        attributes = batch[records.ATTRIBUTES_AT + 1]
        if not attributes & records.TRANSACTIONAL:
            return -1, False
        return records.read_header(batch).producer_id, bool(attributes & records.CONTROL)

    def is_transactional(self, entry: Entry) -> bool:
        return bool(_payload(entry)[records.ATTRIBUTES_AT + 1] & records.TRANSACTIONAL)

    def records_of(self, topic: Topic, entry: Entry) -> list[Record]:
        batch = _payload(entry)
        append_time = record_entries.append_time_of(entry.fields)
        shift = entry.first - records.read_header(batch).base_offset
        limit = topic.policy.max_opened_bytes
        return [
            (offset + shift, timestamp if append_time is None else append_time, key, value, headers)
            for offset, timestamp, key, value, headers in records.records_of(batch, limit=limit)
        ]

    def has_record_from(self, topic: Topic, entry: Entry, offset: int) -> bool:
        """Return whether it has one: a compacted batch may lack its last records."""
        if self.transaction_of(entry)[1]:
            return False
        span = entry.last - entry.first + 1
        if entry.first >= offset or records.read_header(_payload(entry)).records == span:
            return True
        return any(record[0] >= offset for record in self.records_of(topic, entry))

    def timestamps_of(self, topic: Topic, entry: Entry, least: int) -> list[tuple[int, int]]:
        """Return (timestamp, offset) of each record; of a batch that cannot be decoded, of one."""
        newest = _max_timestamp(entry.fields)
        if newest < least or self.transaction_of(entry)[1]:
            return []
        try:
            return [(row[1], row[0]) for row in self.records_of(topic, entry)]
        except BadBatch:
            return [(newest, entry.first)]

    def batches_of(
        self, entries: Run, offset: int, epoch: int, codec: int, *, transactions: bool
    ) -> list[Buffer]:
        """Return the stored batches, uncopied; the client skips records below `offset`."""
        parts: list[Buffer] = []
        for entry in entries:
            parts += batch_builder.batch_at_offset(
                _payload(entry), entry.first, epoch, record_entries.append_time_of(entry.fields)
            )
        return parts


def _payload(entry: Entry) -> bytes:
    batch, _ = batch_of(entry.fields)
    assert batch is not None, "parse_entry returns no such entry"
    return batch


def _max_timestamp(fields: list[bytes]) -> int:
    """Return the newest timestamp by the entry's fields; 0 if a foreign entry has none."""
    name = b"append.time" if fields[0] == b"append.time" else b"max.timestamp"
    try:
        return int(fields[fields.index(name) + 1])
    except ValueError:
        return 0
