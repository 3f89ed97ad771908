"""Write the records of segments into Redis, at their offsets: the restore of a backup.

Layout `record` has its values compressed at rest again, as log.append's callers compress them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from time import time

from korvet.config.topic_policy import TopicConfigs
from korvet.config.values import Settings
from korvet.log.entry import Entry
from korvet.remote_log.manifest import object_name
from korvet.remote_log.recovery.chain import Row
from korvet.remote_log.recovery.report import RestoreRefused, check
from korvet.remote_log.recovery.snapshot import Snapshot
from korvet.remote_log.store import SegmentStore
from korvet.remote_log.stored_entries import entries_of
from korvet.scripts.append_call import FAR
from korvet.scripts.call import Arg, flat
from korvet.scripts.keys import Keys, Partition
from korvet.store.async_store import AsyncStore
from korvet.topics.table import Definition, Topic, encode_definition, read_topic
from korvet.wire import compression, control_records, record_entries, records
from korvet.wire.segments import AbortedRow, CorruptSegment, read_segment

LoadedEntry = tuple[int, int, int, int, int, Sequence[bytes]]
"""First and last offset, records, size, max timestamp (-1: none), and fields of an entry."""
CALL_BYTES = 1 << 20
CALL_ENTRIES = 1000
RECORD_BYTES = 8
"""Bytes of a record in a batch, without its key, its value and its headers."""


@dataclass(eq=False, repr=False)
class Loader:
    """Loads the partitions of a snapshot's topics."""

    store: AsyncStore
    keys: Keys
    segments: SegmentStore
    snapshot: Snapshot
    configs: TopicConfigs
    settings: Settings

    def __post_init__(self) -> None:
        self._threshold = self.settings.integer("storage.compression.min.bytes")

    async def load(
        self, name: str, number: int, definition: Definition, rows: Sequence[Row], start: int
    ) -> list[Row]:
        """Add the records of the segments to the log, from `start` on.

        Return the corrupt segments, which are left out. Raises RestoreRefused and
        RemoteStorageError.
        """
        topic = read_topic(self.keys, name, encode_definition(definition), self.configs)
        if topic is None:
            raise RestoreRefused(f"The definition of topic {name} is not valid.")
        aborted: dict[tuple[str, int], None] = {}
        corrupt = []
        for row in rows:
            try:
                segment, entries = await self._read(topic, number, row)
                for call in _calls(each for each in entries if each.last >= start):
                    loaded = [self._loaded(topic, each) for each in call]
                    await _load(self.store, topic.partition(number), loaded)
            except (CorruptSegment, records.BadBatch):
                corrupt.append(row)
            else:
                aborted.update(dict.fromkeys(map(_aborted, segment)))
        await _load(self.store, topic.partition(number), [], list(aborted))
        return corrupt

    async def _read(
        self, topic: Topic, number: int, row: Row
    ) -> tuple[Sequence[AbortedRow], Iterator[Entry]]:
        """Return the aborted transactions and the entries of a segment. Raises CorruptSegment."""
        id = row[4].rpartition(":")[2]
        name = object_name(self.snapshot.cluster_id, topic.id, number, row[0], id)
        segment, batches = read_segment(await self.segments.read(name))
        return segment.aborted, entries_of(topic, batches)

    def _loaded(self, topic: Topic, entry: Entry) -> LoadedEntry:
        """Return the entry as log.load takes it."""
        fields = entry.fields
        if topic.is_batch:
            return (entry.first, entry.last, *_counts_of_batch(entry), fields)
        if control_records.is_marker(fields):
            return entry.first, entry.last, 0, entry.size, -1, fields
        packed = record_entries.compressed(
            fields, compression.BY_NAME[topic.policy.storage_compression], self._threshold
        )
        return entry.first, entry.last, 1, _size_of_record(fields), entry.milliseconds, packed


async def end_log(
    store: AsyncStore, partition: Partition, definition: Definition, end: int
) -> None:
    """End the log at an offset, if it ends below.

    A marker takes the last offset of the gap: a client that reads to the end gets past the gap.
    """
    reply = await store.run(partition.list_offsets())
    if reply.next >= end:
        return
    now_ms = int(time() * 1000)
    is_batch = definition.shape["format"] == "batch"
    fields = control_records.entry_of(now_ms, 0, 0, False, is_batch=is_batch)
    marker = (end - 1, end - 1, 0, sum(map(len, fields)), -1, fields)
    entries = [] if definition.shape["mode"] == "bytes" else [marker]
    await _load(store, partition, entries, next=end)


def arguments_after(
    entries: Iterable[LoadedEntry], aborted: Sequence[tuple[str, int]]
) -> list[Arg]:
    """Return the arguments of log.load for entries, and for aborted transactions with scores."""
    args: list[Arg] = [len(aborted), *flat(aborted)]
    for *numbers, fields in entries:
        args += (*numbers, len(fields), *fields)
    return args


async def _load(
    store: AsyncStore,
    partition: Partition,
    entries: Sequence[LoadedEntry],
    aborted: Sequence[tuple[str, int]] = (),
    next: int = -1,
) -> None:
    reply = await store.run(partition.load(arguments_after(entries, aborted), next=next))
    check(reply.error, f"the log of {partition.topic}-{partition.number}")


def _aborted(row: AbortedRow) -> tuple[str, int]:
    """Return member and score of an aborted transaction."""
    return f"{row.producer_id}:{row.first}:{row.stable}", row.last


def _size_of_record(fields: Sequence[bytes]) -> int:
    """Return the bytes that the record had in its producer's batch, about."""
    size = RECORD_BYTES
    for at in range(0, len(fields), 2):
        name, value = fields[at], fields[at + 1]
        if name in (b"key", b"value"):
            size += len(value)
        elif b"header." in name:
            size += len(name) - len(b"header.") + len(value)
    return size


def _counts_of_batch(entry: Entry) -> tuple[int, int, int]:
    """Return records, size and max timestamp of an entry of layout `batch`."""
    header = records.read_header(entry.fields[1])
    if header.attributes & records.CONTROL:
        return 0, entry.size, -1
    return entry.last - entry.first + 1, entry.size, min(header.max_timestamp, FAR)


def _calls(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    """Split entries into those of one call."""
    call: list[Entry] = []
    size = 0
    for entry in entries:
        if call and (size + entry.size > CALL_BYTES or len(call) >= CALL_ENTRIES):
            yield call
            call, size = [], 0
        call.append(entry)
        size += entry.size
    if call:
        yield call
