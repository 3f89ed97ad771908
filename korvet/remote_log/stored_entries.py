"""Entries of a topic's layout out of stored batches, for readers that take entries."""

from collections.abc import Iterator

from korvet.log.entry import Entry
from korvet.topics.table import Topic
from korvet.wire import control_records, records
from korvet.wire.records import BatchHeader, Buffer, Record
from korvet.wire.segments import headers_in


def entries_of(topic: Topic, batches: Buffer) -> Iterator[Entry]:
    """Yield the entries that the topic's streams would have for these batches."""
    view = memoryview(batches)
    for at, size, header in headers_in(view):
        batch = bytes(view[at : at + size])
        if topic.is_batch:
            yield _batch_entry(batch, header)
        elif header.attributes & records.CONTROL:
            yield _marker(batch, header)
        else:
            for record in records.records_of(batch):
                yield _record_entry(record, header)


def _batch_entry(batch: bytes, header: BatchHeader) -> Entry:
    count = header.last_offset_delta + 1
    fields = [b"batch", batch, b"count", b"%d" % count]
    fields += [b"max.timestamp", b"%d" % header.max_timestamp]
    last = header.base_offset + header.last_offset_delta
    return Entry(header.base_offset, last, fields, header.max_timestamp, len(batch))


def _marker(batch: bytes, header: BatchHeader) -> Entry:
    ((_, timestamp, key, _, _),) = records.records_of(batch)
    fields = control_records.fields_of(
        timestamp, header.producer_id, header.producer_epoch, key == b"\0\0\0\1"
    )
    return _entry(header.base_offset, timestamp, fields)


def _record_entry(record: Record, header: BatchHeader) -> Entry:
    offset, timestamp, key, value, headers = record
    fields: list[bytes] = []
    if header.attributes & records.LOG_APPEND_TIME:
        fields += (b"append.time", b"%d" % timestamp)
    if header.attributes & records.TRANSACTIONAL:
        fields += (b"transaction", b"%d" % header.producer_id)
    if key is not None:
        fields += (b"key", key)
    if value is not None:
        fields += (b"value", value)
    fields += (b"timestamp", b"%d" % timestamp)
    for name, text in headers:
        prefix = b"header." if text is not None else b"null.header."
        fields += (prefix + name.encode(), text or b"")
    return _entry(offset, timestamp, fields)


def _entry(offset: int, timestamp: int, fields: list[bytes]) -> Entry:
    return Entry(offset, offset, fields, timestamp, sum(map(len, fields)))
