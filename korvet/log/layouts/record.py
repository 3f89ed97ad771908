"""The `record` layout: one record is the fields of one entry; see `korvet/wire/record_entries.py`.

Redis clients may XADD such entries themselves, and read those of a producer.
"""

from collections.abc import Iterable, Iterator

from korvet.config.values import Settings
from korvet.log.entry import Entry
from korvet.log.layouts.base import BaseLayout, Run, any_append_time
from korvet.scripts.call import Call
from korvet.scripts.calls.partition import AppendReply
from korvet.topics.table import Topic
from korvet.wire import batch_builder, compression, control_records, record_entries
from korvet.wire.records import BatchHeader, Buffer, Record


def stored_size(rows: Iterable[Record]) -> int:
    """Return the bytes that records count in the log, before any compression at rest."""
    return sum(
        len(key or b"") + len(value or b"") + record_entries.OVERHEAD
        for _, _, key, value, _ in rows
    )


NO_PRODUCER = (-1, -1, -1)
"""Producer id, epoch and base sequence of a batch without idempotence."""


class RecordLayout(BaseLayout):
    """The layout with a record per entry."""

    takes_transactions = True
    holds_batches = False

    def append_records(
        self,
        topic: Topic,
        partition: int,
        rows: list[Record],
        *,
        size: int,
        max_timestamp: int,
        header: BatchHeader | None = None,
        transaction: int = -1,
        settings: Settings,
    ) -> Call[AppendReply]:
        """Return the call that appends these records; `header` is that of their batch, if any.

        `size` is what the client sent, and counts unless that was compressed.
        """
        if header is None or header.codec:
            size = stored_size(rows)
        producer_id, producer_epoch, base_sequence = header.producer if header else NO_PRODUCER
        return topic.partition(partition).append(
            count=len(rows),
            size=size,
            max_timestamp=max_timestamp,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            transaction=transaction,
            stamp=int(topic.policy.log_append_time),
            fields=record_entries.fields_of(
                rows,
                codec=compression.BY_NAME[topic.policy.storage_compression],
                threshold=settings.integer("storage.compression.min.bytes"),
                producer_id=producer_id if transaction >= 0 else None,
            ),
        )

    def parse_entry(
        self, last: int, milliseconds: int, fields: list[bytes], decompress: bool
    ) -> Entry | None:
        if decompress:
            fields = record_entries.decompressed(fields)
        return Entry(last, last, fields, milliseconds, sum(map(len, fields)))

    def transaction_of(self, entry: Entry) -> tuple[int, bool]:
        producer_id = control_records.producer_of(entry.fields)
        if producer_id is None:
            return -1, False
        return producer_id, control_records.is_marker(entry.fields)

    def is_transactional(self, entry: Entry) -> bool:
        return b"transaction" in entry.fields[:4:2]

    def records_of(self, topic: Topic, entry: Entry) -> list[Record]:
        return [record_entries.record_of(entry.last, entry.milliseconds, entry.fields)]

    def timestamps_of(self, topic: Topic, entry: Entry, least: int) -> list[tuple[int, int]]:
        if self.transaction_of(entry)[1]:
            return []
        return [(row[1], row[0]) for row in self.records_of(topic, entry)]

    def batches_of(
        self, entries: Run, offset: int, epoch: int, codec: int, *, transactions: bool
    ) -> list[Buffer]:
        """Return one batch, or several if transactions or times of append differ."""
        if not transactions and not any_append_time(entries):
            return [_build_batch(entries, epoch, codec, None)]
        return [
            control_records.batch_of(run[0].last, run[0].fields, epoch)
            if is_marker
            else _build_batch(run, epoch, codec, producer_id)
            for producer_id, is_marker, run in split_runs(entries)
        ]


def _build_batch(run: Run, epoch: int, codec: int, producer_id: int | None) -> bytearray:
    return batch_builder.build(
        [record_entries.record_of(entry.last, entry.milliseconds, entry.fields) for entry in run],
        codec=codec,
        append_time=record_entries.append_time_of(run[-1].fields),
        leader_epoch=epoch,
        transactional=producer_id is not None,
        producer=NO_PRODUCER if producer_id is None else (producer_id, 0, -1),
    )


def split_runs(entries: Run) -> Iterator[tuple[int | None, bool, Run]]:
    """Split entries into runs that can share a batch.

    Yields the producer of their transaction or None, whether it is a marker, and the entries. All
    records of a batch have one time of append, or none.
    """
    run: list[Entry] = []
    owner: int | None = None
    append_time: int | None = None
    for entry in entries:
        producer_id = control_records.producer_of(entry.fields)
        if control_records.is_marker(entry.fields):
            if run:
                yield owner, False, run
            yield producer_id, True, [entry]
            run = []
            continue
        time = record_entries.append_time_of(entry.fields)
        if run and (producer_id != owner or time != append_time):
            yield owner, False, run
            run = []
        owner, append_time = producer_id, time
        run.append(entry)
    if run:
        yield owner, False, run
