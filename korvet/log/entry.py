"""What the entries of a partition hold: records, batches to send, and the marks of transactions."""

from collections.abc import Iterator, Sequence

import msgspec

from korvet.log import byte_offsets
from korvet.topics.table import Topic
from korvet.wire import control_records, record_entries, records
from korvet.wire.records import Buffer, Record

_WHOLE = (b"batch", b"set")


class Entry(msgspec.Struct, frozen=True):
    """One stream entry with the offsets it holds, first and last."""

    first: int
    last: int
    fields: list[bytes]
    milliseconds: int
    """When it was appended, by its id; when it was read, where ids tell no time."""
    size: int

    @property
    def last_record(self) -> int:
        """The last record's offset: in bytes mode the entry reaches further."""
        return self.last - byte_offsets.tail_of(self.fields)


def batch_of(fields: Sequence[bytes]) -> tuple[bytes | None, int]:
    """The batch an entry of layout `batch` holds, and how many offsets it takes; None where it
    holds none: anybody may have added it."""
    at = 2 if fields[0] == b"append.time" else 0
    if len(fields) < at + 4 or fields[at] not in _WHOLE or fields[at + 2] != b"count":
        return None, 0
    batch, count = fields[at + 1], fields[at + 3]
    if fields[at] == b"batch":
        ours = len(batch) >= records.HEADER_SIZE and count.isdigit() and len(count) < 17
    else:
        ours = len(batch) > 0 and count == b"%d" % len(batch)
    return (batch, int(count)) if ours else (None, 0)


def batches_of(entries_read: Sequence[Entry], epoch: int) -> list[Buffer]:
    """The stored batches of a `batch` topic, as buffers to send."""
    parts: list[Buffer] = []
    for entry in entries_read:
        batch, _ = batch_of(entry.fields)
        assert batch is not None
        parts += records.place(
            batch, entry.first, epoch, record_entries.append_time_of(entry.fields)
        )
    return parts


def runs_of(entries_read: Sequence[Entry]) -> Iterator[tuple[int | None, bool, list[Entry]]]:
    """Entries of a `record` topic that can share a batch: (producer of their transaction or None,
    whether it is a marker, the entries). A batch has one append time for all, or none for any."""
    run: list[Entry] = []
    owner: int | None = None
    moment: int | None = None
    for entry in entries_read:
        if control_records.is_marker(entry.fields):
            if run:
                yield owner, False, run
            yield control_records.producer_of(entry.fields), True, [entry]
            run = []
            continue
        producer_id = control_records.producer_of(entry.fields)
        appended = record_entries.append_time_of(entry.fields)
        if run and (producer_id != owner or appended != moment):
            yield owner, False, run
            run = []
        owner, moment = producer_id, appended
        run.append(entry)
    if run:
        yield owner, False, run


def any_stamped(entries_read: Sequence[Entry]) -> bool:
    """Whether one of the entries says when it was appended."""
    return bool([entry for entry in entries_read if entry.fields[0] == b"append.time"])


def records_in(
    topic: Topic, entries_read: Sequence[Entry], aborted: Sequence[tuple[int, int]] = ()
) -> list[Record]:
    """Every record of these entries, at its own offset, whatever the layout; markers are none.

    What transactions named in `aborted` (of a committed read) wrote is left out.
    """
    found: list[Record] = []
    dropped: dict[int, int] = {}
    began = sorted(aborted, key=lambda row: row[1], reverse=True)
    for entry in entries_read:
        while began and began[-1][1] <= entry.last:
            producer_id, first = began.pop()
            dropped[producer_id] = first
        owner, marker = _mark(topic, entry)
        if marker:
            dropped.pop(owner, None)
        elif owner not in dropped:
            found += records_of(topic, entry)
    return found


def _mark(topic: Topic, entry: Entry) -> tuple[int, bool]:
    """Whose transaction the entry belongs to, -1 for none, and whether it is a marker."""
    if topic.is_bytes:
        return -1, False
    if not topic.is_batch:
        producer_id = control_records.producer_of(entry.fields)
        if producer_id is None:
            return -1, False
        return producer_id, control_records.is_marker(entry.fields)
    batch, _ = batch_of(entry.fields)
    assert batch is not None
    attributes = batch[records.ATTRIBUTES_AT + 1]
    if not attributes & records.TRANSACTIONAL:
        return -1, False
    return records.read_header(batch).producer_id, bool(attributes & records.CONTROL)


def nothing_from(topic: Topic, entries_read: Sequence[Entry], offset: int) -> bool:
    """Whether there are entries, and not one with a record for anybody from `offset` on: markers,
    and a batch whose last records were compacted away."""
    return bool(entries_read) and not any(_reaches(topic, one, offset) for one in entries_read)


def _reaches(topic: Topic, entry: Entry, offset: int) -> bool:
    """Whether the entry has a record at `offset` or behind it."""
    if _mark(topic, entry)[1]:
        return False
    if entry.first >= offset or topic.is_bytes or not topic.is_batch:
        return True
    batch, count = batch_of(entry.fields)
    assert batch is not None
    if records.read_header(batch).records == count:
        return True
    return any(record[0] >= offset for record in records_of(topic, entry))


def records_of(topic: Topic, entry: Entry) -> list[Record]:
    """The records of one entry that is no marker, at their own offsets."""
    if topic.is_bytes:
        return list(byte_offsets.records_of(entry.first, entry.fields))
    if not topic.is_batch:
        return [record_entries.record_of(entry.last, entry.milliseconds, entry.fields)]
    batch, _ = batch_of(entry.fields)
    assert batch is not None
    stamped = record_entries.append_time_of(entry.fields)
    base = records.read_header(batch).base_offset
    limit = topic.policy.max_message_bytes * records.BOMB_FACTOR
    return [
        (
            entry.first + offset - base,
            timestamp if stamped is None else stamped,
            key,
            value,
            headers,
        )
        for offset, timestamp, key, value, headers in records.records_of(batch, limit=limit)
    ]


def owner_of(topic: Topic, entry: Entry) -> int:
    """The producer whose transaction the entry belongs to, -1 for none."""
    return _mark(topic, entry)[0]


def is_marker(topic: Topic, entry: Entry) -> bool:
    """Whether the entry is the marker of a transaction."""
    return _mark(topic, entry)[1]


def is_transactional(topic: Topic, entry: Entry) -> bool:
    """Whether the entry belongs to a transaction, open or not."""
    if not topic.is_batch:
        return b"transaction" in entry.fields[:4:2]
    batch, _ = batch_of(entry.fields)
    return batch is not None and bool(batch[records.ATTRIBUTES_AT + 1] & records.TRANSACTIONAL)
