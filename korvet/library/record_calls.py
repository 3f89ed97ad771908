"""Calls on records: append, read, find."""

from collections.abc import AsyncGenerator, Iterable, Sequence
from time import time

from korvet.base.errors import ErrorCode
from korvet.groups.lag import find_offset
from korvet.library.batches import Batcher, encode_batch
from korvet.library.session import TopicCalls, check, check_partition
from korvet.library.values import (
    Appended,
    Fetched,
    KeyChanged,
    KorvetError,
    LostRecords,
    Producer,
    Record,
    StoredRecord,
)
from korvet.log.layouts import records_in
from korvet.log.leader_epochs import is_lost, lost_from, parse_rows
from korvet.log.position import Position
from korvet.log.read_result import ReadRequest
from korvet.log.tables import fill
from korvet.log.validator import prepare_append
from korvet.scripts.call import Call
from korvet.scripts.calls.partition import AppendReply
from korvet.topics.table import Topic
from korvet.wire.records import BadBatch

FETCH_BYTES = 1 << 20
_PRODUCE_VERSION = 13


def appended(topic: str, number: int, records: int, reply: AppendReply) -> Appended:
    """Return what an append has stored. Raises KorvetError if it was refused."""
    refused = f"Partition {number} of {topic!r} refused a batch"
    if reply.error == ErrorCode.INVALID_UPDATE_VERSION:
        raise KeyChanged(refused, reply.base)
    check(reply.error, refused)
    return Appended(topic, number, reply.base, records, not reply.stored)


class RecordCalls(TopicCalls):
    """Append and read records."""

    async def produce(self, topic: str, records: Iterable[Record]) -> list[Appended]:
        """Append records to the partitions that their keys choose, in as few batches as fit."""
        return await self.produce_to(topic, ((None, record) for record in records))

    async def produce_to(
        self, topic: str, records: Iterable[tuple[int | None, Record]]
    ) -> list[Appended]:
        """Append records to given partitions; None lets the key choose."""
        found = await self.find_topic(topic)
        batcher = self.batchers.setdefault(topic, Batcher())
        limit = found.policy.max_message_bytes
        return await self._append(found, list(batcher.batches(records, found.partitions, limit)))

    async def append(
        self,
        topic: str,
        partition: int,
        records: Sequence[Record],
        *,
        producer: Producer | None = None,
        sequence: int = 0,
    ) -> Appended:
        """Append one batch to one partition, all of it or nothing.

        With a producer the batch is idempotent: `sequence` is that of its first record, counted
        per partition from 0. A batch sent again is recognised and stored once.
        """
        found = await self.find_topic(topic)
        identity = (-1, -1, -1) if producer is None else (producer.id, producer.epoch, sequence)
        (appended,) = await self._append(found, [(partition, records)], identity)
        return appended

    async def _append(
        self,
        topic: Topic,
        batches: Sequence[tuple[int, Sequence[Record]]],
        producer: tuple[int, int, int] = (-1, -1, -1),
    ) -> list[Appended]:
        await self.complete_tables(topic, batches)
        replies = await self.store.run_many(self.prepare(topic, batches, producer))
        return [
            appended(topic.name, number, len(records), reply)
            for (number, records), reply in zip(batches, replies, strict=True)
        ]

    async def complete_tables(
        self, topic: Topic, batches: Iterable[tuple[int, Sequence[Record]]]
    ) -> None:
        """Add to the tables what no append has, for records with an expected offset.

        Raises KorvetError if the topic has no offsets in its tables.
        """
        for number, records in batches:
            if all(record.expected_offset is None for record in records):
                continue
            if not topic.policy.table_offsets_enable:
                raise KorvetError(
                    ErrorCode.INVALID_RECORD,
                    f"Topic {topic.name!r} knows no offsets of keys: set its configs table.enable "
                    "and table.offsets.enable to true.",
                )
            check_partition(topic, number)
            await fill(self.store, topic.partition(number))

    def prepare(
        self,
        topic: Topic,
        batches: Iterable[tuple[int, Sequence[Record]]],
        producer: tuple[int, int, int],
    ) -> list[Call[AppendReply]]:
        """Return the calls that append batches by partition. Raises KorvetError.

        `producer` is (id, epoch, sequence of the first record).
        """
        now_ms = int(time() * 1000)
        calls = []
        for number, records in batches:
            check_partition(topic, number)
            try:
                batch = encode_batch(records, now_ms, producer)
                calls.append(
                    prepare_append(
                        topic,
                        number,
                        batch,
                        version=_PRODUCE_VERSION,
                        now_ms=now_ms,
                        settings=self.settings,
                    )
                )
            except BadBatch as bad:
                raise KorvetError(bad.error, str(bad)) from None
        return calls

    async def append_batch(self, topic: Topic, partition: int, batch: bytes) -> ErrorCode:
        """Append an encoded batch to a partition; return the error."""
        try:
            call = prepare_append(
                topic,
                partition,
                batch,
                version=_PRODUCE_VERSION,
                now_ms=int(time() * 1000),
                settings=self.settings,
            )
        except BadBatch as bad:
            return bad.error
        return ErrorCode((await self.store.run(call)).error)

    async def new_producer(self) -> Producer:
        """Allocate the id of a new idempotent producer."""
        reply = await self.store.run(self.keys.producer_allocate())
        return Producer(reply.producer_id)

    async def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int = FETCH_BYTES,
        committed: bool = False,
    ) -> Fetched:
        """Read records from an offset on, about `max_bytes` of them; none at the end.

        `committed` leaves out aborted transactions, and ends at the last stable offset. Raises
        LostRecords if Redis has lost the records below the offset.
        """
        found = await self.find_topic(topic)
        check_partition(found, partition)
        return await self.fetch_from(found, partition, offset, max_bytes, committed)

    async def fetch_from(
        self, topic: Topic, partition: int, offset: int, max_bytes: int, committed: bool
    ) -> Fetched:
        """Read records of a topic object. Raises KorvetError if it was replaced."""
        request = ReadRequest(topic, partition, offset, max_bytes, committed=committed)
        part = await self.reader.read(request)
        if part.error == ErrorCode.KAFKA_STORAGE_ERROR and self.reader.remote is None:
            raise KorvetError(
                part.error,
                f"Offset {offset} of partition {partition} of {topic.name!r} is in the remote "
                "store: set remote.log.storage.system.enable and remote.storage.url as on the "
                "brokers.",
            )
        where = f"Partition {partition} of {topic.name!r} cannot be read from offset {offset}"
        out = part.error == ErrorCode.OFFSET_OUT_OF_RANGE
        if out or is_lost(offset, parse_rows(part.epochs)):
            bounds = await self.store.run(topic.partition(partition).list_offsets())
            lost = lost_from(offset, parse_rows(bounds.epochs), bounds.first, bounds.next)
            if lost >= 0:
                raise LostRecords(where, lost)
        check(part.error, where)
        rows = records_in(topic, part.entries, part.aborted)
        records = [StoredRecord(topic.name, partition, *row) for row in rows if row[0] >= offset]
        after = part.entries[-1].last + 1 if part.entries else offset
        return Fetched(records, after, part.end, part.last_stable)

    async def records(
        self,
        topic: str,
        partition: int,
        start: int | None = None,
        stop: int | None = None,
        *,
        committed: bool = False,
    ) -> AsyncGenerator[StoredRecord, None]:
        """Yield a partition's records in [start, stop), to its present end by default."""
        found = await self.find_topic(topic)
        check_partition(found, partition)
        ends = (await self.offsets(topic))[partition]
        offset = ends.earliest if start is None else start
        limit = ends.latest if stop is None else stop
        while offset < limit:
            fetched = await self.fetch(topic, partition, offset, committed=committed)
            for record in fetched.records:
                if record.offset >= limit:
                    return
                yield record
            if fetched.next_offset == offset:
                return
            offset = fetched.next_offset

    async def find_offset(self, topic: str, partition: int, position: Position) -> int:
        """Return the offset at a position; a time finds the first record at or after it."""
        found = await self.find_topic(topic)
        check_partition(found, partition)
        offset = await find_offset(self.store, self.reader, found, partition, position)
        if offset < 0:
            check(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"find offset of {topic}-{partition}")
        return offset
