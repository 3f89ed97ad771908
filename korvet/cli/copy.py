"""`korvet copy SRC DST`: copy a topic's records to another topic, here or at other brokers.

Rules
- Records and progress are written in one transaction: after a kill, the next run continues where
  the last transaction ended, and no committed record is there twice.
- The progress is the metadata of offsets that a group commits in the destination topic. The group
  has the id of the source topic: one that was created again is another source.
- A run fences another one of the same copy.
- The requests are those of Kafka 2.5: newer ones add partitions to a transaction in other ways.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

import typer

from korvet.base.errors import ErrorCode
from korvet.cli import options as o
from korvet.cli import table_output
from korvet.cli.broker_log import BrokerLog, BrokerTopic
from korvet.cli.kafka_client import ClientSettings, KafkaClient, check, check_code
from korvet.cli.kafka_requests import (
    GROUP,
    NOT_READY,
    TRANSACTION,
    Requests,
    Via,
    ask_coordinator,
)
from korvet.cli.record_reader import size_of
from korvet.config.setting import StartError
from korvet.library.batches import Batcher, partition_of
from korvet.library.values import Record, StoredRecord
from korvet.wire import batch_builder
from korvet.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from korvet.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from korvet.wire.messages.end_txn import EndTxnRequest
from korvet.wire.messages.init_producer_id import InitProducerIdRequest
from korvet.wire.messages.produce import ProduceRequest
from korvet.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from korvet.wire.schema import Message
from korvet.wire.structs import NamedPartitions

_SCHEME = "kafka://"
_TRANSACTION_BYTES = 4 << 20
"""About the bytes of a transaction."""
_TIMEOUT_MS = 60_000
_METADATA_BYTES = 4096
"""Kafka's default offset.metadata.max.bytes."""
_BATCH_BYTES = 1 << 20
_ATTEMPTS, _PAUSE_S = 150, 0.1
_BELOW: Mapping[type[Message], int] = {
    AddPartitionsToTxnRequest: 4,
    AddOffsetsToTxnRequest: 4,
    TxnOffsetCommitRequest: 4,
    EndTxnRequest: 4,
    ProduceRequest: 10,
    InitProducerIdRequest: 5,
}
"""The first version of each request that is not sent."""
_AGAIN = (*NOT_READY, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
"""Errors of a topic that was created now, or of a transaction that still ends."""


def copy(
    source: Annotated[
        str, typer.Argument(metavar="SRC", help=f"TOPIC, or {_SCHEME}HOST:PORT/TOPIC.")
    ],
    destination: Annotated[
        str, typer.Argument(metavar="DST", help="The same. It is created if it is missing.")
    ],
    via: Via,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions", "-p", metavar="N", help="Of a DST that is created. Default: as SRC."
        ),
    ] = None,
    config: o.TopicConfigs = None,
    group: Annotated[
        list[str] | None,
        typer.Option(
            "--group", "-g", metavar="GROUP", help="Commit this group's offsets in DST too. Repeat."
        ),
    ] = None,
    append: Annotated[
        bool, typer.Option("--append", help="Begin a copy into a DST that has records.")
    ] = False,
    source_config: Annotated[
        Path | None,
        typer.Option("--source-config", metavar="FILE", help="As --client-config, for SRC."),
    ] = None,
    destination_config: Annotated[
        Path | None,
        typer.Option("--destination-config", metavar="FILE", help="As --client-config, for DST."),
    ] = None,
) -> None:
    """Copy a topic's records to another topic, also from or to other brokers.

    Keys, values, headers and timestamps are kept, aborted records left out. It ends at the ends
    that SRC has at the start. A run that was ended is continued by the next one: no record is
    missing or there twice for consumers that read committed records.
    """
    configs = dict(o.assignments("--config", config))

    async def run(near: Requests | None) -> None:
        of = _TopicAt(source, source_config, near)
        to = _TopicAt(destination, destination_config, near)
        async with of, to:
            copier = await _Copier.start(of, to, partitions, configs, append=append)
            count = await copier.run()
            table_output.line(f"copied {count} records from {source} to {destination}")
            for name in group or ():
                await copier.translate(name)
                table_output.line(f"committed the offsets of {name}")

    if source.startswith(_SCHEME) and destination.startswith(_SCHEME):
        asyncio.run(run(None))
    else:
        via.run(run)


class _TopicAt:
    """A topic, and the receiver of its requests."""

    def __init__(self, text: str, file: Path | None, near: Requests | None) -> None:
        self._client: KafkaClient | None = None
        self.topic = text
        if text.startswith(_SCHEME):
            brokers, slash, self.topic = text.removeprefix(_SCHEME).rpartition("/")
            if not slash or not brokers or not self.topic:
                raise StartError(f"{text!r} is not {_SCHEME}HOST:PORT/TOPIC.")
            name = None if file is None else str(file)
            self._client = KafkaClient(ClientSettings.read(brokers, name, os.environ))
        self._near = near

    async def __aenter__(self) -> Self:
        if self._client is not None:
            await self._client.__aenter__()
        self.log = BrokerLog(self.requests)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._client is not None:
            await self._client.__aexit__()

    @property
    def requests(self) -> Requests:
        """The receiver of requests."""
        found = self._client or self._near
        assert found is not None, "without a near one both have clients"
        return found


class _Copier:
    """A producer with the progress of a copy: the next offset of each partition of the source."""

    def __init__(
        self, of: _TopicAt, to: _TopicAt, source: BrokerTopic, target: BrokerTopic
    ) -> None:
        self._of, self._to = of, to
        self._source, self._target = source, target
        source_id = source.id.hex[:16] if source.id else source.name
        self._name = f"korvet-copy.{source.name}.{source_id}.{target.name}"
        self._producer = (-1, -1)
        self._sequences: dict[int, int] = {}
        self.offsets: dict[int, int] = {}
        self._is_new = True

    @classmethod
    async def start(
        cls,
        of: _TopicAt,
        to: _TopicAt,
        partitions: int | None,
        configs: Mapping[str, str],
        *,
        append: bool,
    ) -> Self:
        """Create the destination if it is missing, and continue at the progress of the last run."""
        source = await of.log.topic(of.topic)
        if to.topic not in await to.log.topics():
            await to.log.create_topic(to.topic, partitions or source.partitions, configs)
        for attempt in range(_ATTEMPTS):
            try:
                target = await to.log.topic(to.topic)
                break
            except StartError:  # the brokers do not have it yet
                if attempt == _ATTEMPTS - 1:
                    raise
                await asyncio.sleep(_PAUSE_S)
        copier = cls(of, to, source, target)
        await copier._begin()
        if copier._is_new and not append:
            ends = await to.log.offsets(to.topic)
            if any(each.records for each in ends):
                raise StartError(
                    f"{to.topic} has records, and no progress of a copy of {of.topic}: choose "
                    "another topic, or give --append."
                )
        return copier

    async def _begin(self) -> None:
        """Fence other runs, abort what they left open, and read the progress."""
        request = InitProducerIdRequest(
            transactional_id=self._name, transaction_timeout_ms=_TIMEOUT_MS
        )
        answer = await self._ask(TRANSACTION, request)
        check(answer)
        self._producer = (answer.producer_id, answer.producer_epoch)
        for row in await self._to.log.committed(self._name, stable=True):
            self._is_new = False
            for word in row.metadata.split():
                number, _, offset = word.partition(":")
                self.offsets[int(number)] = int(offset)

    async def run(self) -> int:
        """Copy up to the present ends; return the number of records."""
        ends = await self._of.log.offsets(self._source.name)
        stops = {each.partition: each.latest for each in ends}
        for each in ends:
            offset = self.offsets.setdefault(each.partition, each.earliest)
            if offset < each.earliest:
                table_output.note(
                    f"records {offset} to {each.earliest - 1} of partition {each.partition} were "
                    "deleted before they were copied"
                )
                self.offsets[each.partition] = each.earliest
        if self._is_new:  # a run that is ended in its first transaction leaves a copy too
            await self._write([], self.offsets)
        total = sum(stops[number] - self.offsets[number] for number in stops)
        count = 0
        with table_output.progress(self._source.name, total, shown=True) as advance:
            left = sorted(stops)
            while left:
                chunk: list[StoredRecord] = []
                moved: dict[int, int] = {}
                size = 0
                for number in list(left):
                    if size >= _TRANSACTION_BYTES:
                        break
                    at = self.offsets[number]
                    found = await self._of.log.fetch(self._source.name, number, at, committed=True)
                    some = [each for each in found.records if each.offset < stops[number]]
                    following = min(found.next_offset, stops[number])
                    if following <= at:
                        left.remove(number)
                        continue
                    left.append(left.pop(left.index(number)))  # the others come first
                    chunk += some
                    moved[number] = following
                    size += sum(map(size_of, some))
                if moved:
                    await self._write(chunk, moved)
                    count += len(chunk)
                    advance(sum(moved[number] - self.offsets[number] for number in moved))
                    self.offsets |= moved
        return count

    async def _write(self, chunk: Sequence[StoredRecord], moved: Mapping[int, int]) -> None:
        """Write records and progress in one transaction."""
        by_partition: dict[int, list[Record]] = {}
        for row in chunk:
            record = Record(row.value, row.key, row.headers, row.timestamp_ms)
            by_partition.setdefault(self._number(row), []).append(record)
        placed = [(number, each) for number, rows in by_partition.items() for each in rows]
        if placed:
            await self._add_partitions(sorted(by_partition))
            batcher = Batcher()
            for number, batch in batcher.batches(placed, self._target.partitions, _BATCH_BYTES):
                await self._produce(number, batch)
        await self._commit_progress({**self.offsets, **moved}, moved)
        id_, epoch = self._producer
        end = EndTxnRequest(
            transactional_id=self._name, producer_id=id_, producer_epoch=epoch, committed=True
        )
        check(await self._ask(TRANSACTION, end))

    def _number(self, row: StoredRecord) -> int:
        """Return the partition of a record: its own, or by its key in another number of them."""
        count = self._target.partitions
        if count == self._source.partitions or row.key is None:
            return row.partition % count
        return partition_of(row.key, count)

    async def _add_partitions(self, numbers: list[int]) -> None:
        id_, epoch = self._producer
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._name,
            v3_and_below_producer_id=id_,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[NamedPartitions(name=self._target.name, partitions=numbers)],
        )

        def codes(answer: Any) -> list[int]:
            topics = answer.results_by_topic_v3_and_below
            return [
                row.partition_error_code for each in topics for row in each.results_by_partition
            ]

        for code in codes(await self._ask(TRANSACTION, request, lambda row: max(codes(row)))):
            check_code(code)

    async def _produce(self, number: int, batch: Sequence[Record]) -> None:
        """Append a batch to a partition, in the order of its sequence."""
        sequence = self._sequences.get(number, 0)
        rows = [
            (at, -1 if each.timestamp_ms is None else each.timestamp_ms, each.key, each.value,
             list(each.headers))
            for at, each in enumerate(batch)
        ]  # fmt: skip
        data = batch_builder.build(rows, transactional=True, producer=(*self._producer, sequence))
        await self._to.log.append(
            self._target.name,
            number,
            data,
            transactional_id=self._name,
            again=_AGAIN,
            below=_BELOW[ProduceRequest],
        )
        self._sequences[number] = (sequence + len(batch)) % (1 << 31)

    async def _commit_progress(self, offsets: Mapping[int, int], moved: Iterable[int]) -> None:
        """Commit the progress of the partitions that moved, in the transaction."""
        id_, epoch = self._producer
        count = self._target.partitions
        rows = []
        for slot in sorted({number % count for number in moved}):
            words = [f"{number}:{at}" for number, at in offsets.items() if number % count == slot]
            metadata = " ".join(words)
            if len(metadata) > _METADATA_BYTES:
                raise StartError(
                    f"{self._source.name} has too many partitions for a copy into {count}."
                )
            row = TxnOffsetCommitRequestPartition(
                partition_index=slot, committed_offset=0, committed_metadata=metadata
            )
            rows.append(row)
        add = AddOffsetsToTxnRequest(
            transactional_id=self._name, producer_id=id_, producer_epoch=epoch, group_id=self._name
        )
        check(await self._ask(TRANSACTION, add))
        topic = TxnOffsetCommitRequestTopic(
            name=self._target.name, topic_id=self._target.id, partitions=rows
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self._name,
            group_id=self._name,
            producer_id=id_,
            producer_epoch=epoch,
            topics=[topic],
        )

        def codes(answer: Any) -> list[int]:
            return [row.error_code for each in answer.topics for row in each.partitions]

        for code in codes(await self._ask(GROUP, request, lambda row: max(codes(row)))):
            check_code(code)

    async def _ask(
        self,
        kind: int,
        request: Message,
        code: Callable[[Any], int] = lambda answer: int(answer.error_code),
    ) -> Any:
        """Return the response of the coordinator of the copy's group or transactional id."""
        below = _BELOW[type(request)]
        return await ask_coordinator(
            self._to.requests, kind, self._name, request, code, again=_AGAIN, below=below
        )

    async def translate(self, group: str) -> None:
        """Commit a group's offsets in the destination: before as many records as in the source.

        The records of both topics are counted, up to the offsets.
        """
        if self._source.partitions != self._target.partitions:
            raise StartError(
                f"{group}: offsets are translated only if both topics have equal partitions."
            )
        found = {
            row.partition: row.offset
            for row in await self._of.log.committed(group)
            if row.topic == self._source.name
        }
        if not found:
            raise StartError(f"{group} has no offsets in {self._source.name}.")
        firsts, starts = [
            {each.partition: each.earliest for each in await at.log.offsets(at.topic)}
            for at in (self._of, self._to)
        ]
        offsets = {
            (self._target.name, number): await self._translated(
                number, firsts[number], offset, starts[number]
            )
            for number, offset in found.items()
        }
        await self._to.log.commit(group, offsets)

    async def _translated(self, number: int, first: int, offset: int, start: int) -> int:
        """Return the destination's offset with as many records from `start` on before it.

        They are those of the source from its `first` offset to `offset`.
        """
        before = 0
        async for record in _records(self._of, self._source.name, number, first):
            if record.offset >= offset:
                break
            before += 1
        following = start
        if before:
            async for record in _records(self._to, self._target.name, number, start):
                following, before = record.offset + 1, before - 1
                if not before:
                    break
        return following


async def _records(
    at: _TopicAt, name: str, number: int, offset: int
) -> AsyncIterator[StoredRecord]:
    """Yield a partition's committed records from an offset on."""
    while True:
        found = await at.log.fetch(name, number, offset, committed=True)
        for record in found.records:
            yield record
        if found.next_offset <= offset:
            return
        offset = found.next_offset
