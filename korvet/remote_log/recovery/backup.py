"""Back up a namespace of Redis: the metadata as a snapshot, the records as segments.

    <cluster id>/<topic id>/<partition>/...segment     the records
    <cluster id>/metadata/<number>.snapshot            written last: without it there is no backup

Rules
- No broker has to run or stop. Each partition is backed up to the end that it had at one moment,
  after the commits were read. That is a moment without an open transaction, if there is one within
  `wait_s`; else the last stable offset.
- Segments that a tiered topic has are copied as they are; the records in Redis are read into new
  ones.
- A backup that was interrupted continues after the segments that it has.
"""

import asyncio
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from time import monotonic, time

import msgspec

from korvet.base.errors import ErrorCode
from korvet.config.topic_policy import TopicConfigs
from korvet.remote_log.copier import Collector
from korvet.remote_log.manifest import find_segment, object_name
from korvet.remote_log.recovery.capture import capture
from korvet.remote_log.recovery.chain import build_chain, list_objects
from korvet.remote_log.recovery.report import BackupReport, Loss
from korvet.remote_log.recovery.scheduled import read_rows
from korvet.remote_log.recovery.snapshot import (
    PartitionState,
    ScheduledRecords,
    Snapshot,
    SnapshotStore,
    TopicState,
    encode,
)
from korvet.remote_log.store import SegmentStore
from korvet.scripts.keys import Keys
from korvet.store.async_store import AsyncStore
from korvet.topics.table import Topic, encode_definition, read_topic
from korvet.wire.segment_writer import SegmentWriter
from korvet.wire.segments import CorruptSegment, read_segment

CHECK_S = 0.05


class BackupRefused(Exception):
    """The backup cannot be made; the message says why and what to do."""


def deleted(topic: Topic) -> BackupRefused:
    """Return the refusal for a topic that was deleted during the backup."""
    return BackupRefused(
        f"Topic {topic.name} was deleted during the backup: repeat the command, which continues."
    )


class Cut(msgspec.Struct, frozen=True):
    """The part of a partition from `start` to below `end`."""

    start: int
    end: int
    next: int
    """The end of the log, above `end` if a transaction is open."""
    epoch: int
    scheduled: list[tuple[int, bytes]]
    """Scheduled records: due time in ms and row of each."""


async def find_cut(store: AsyncStore, keys: Keys, topic: Topic, number: int, wait_s: float) -> Cut:
    """Return a moment's state of the partition, without an open transaction within `wait_s`.

    Raises BackupRefused.
    """
    until = monotonic() + wait_s
    while True:
        waiting = await read_rows(store, keys, topic.name, number)
        reply = await store.run(topic.partition(number).list_offsets())
        if reply.error:
            raise deleted(topic)
        is_quiet = reply.stable >= reply.next
        if is_quiet and waiting != await read_rows(store, keys, topic.name, number):
            is_quiet = False  # a record moved to the log, or from there
        if is_quiet or monotonic() >= until:
            end = max(reply.start, min(reply.next, reply.stable))
            return Cut(reply.start, end, reply.next, reply.epoch, waiting)
        await asyncio.sleep(CHECK_S)


SEGMENT_BYTES = 16 << 20
AT_ONCE = 4
"""Partitions at a time: each has a segment in memory."""
TRIES = 20
"""Reads of a partition without progress after which the backup fails."""


@dataclass(eq=False, repr=False)
class Backup:
    """A backup of a namespace into `target`; `remote` has the segments of tiered topics.

    `on_records` is called with the number of records that were written or found.
    """

    store: AsyncStore
    keys: Keys
    configs: TopicConfigs
    cluster_id: str
    target: SegmentStore
    remote: SegmentStore | None
    _: KW_ONLY
    wait_s: float = 10.0
    on_records: Callable[[int], None] = lambda count: None

    def __post_init__(self) -> None:
        self._limit = asyncio.Semaphore(AT_ONCE)
        self._left: list[Loss] = []
        self._scheduled: list[ScheduledRecords] = []
        self._counts = {"segments": 0, "records": 0, "bytes": 0}

    async def run(self) -> BackupReport:
        """Write the backup. Raises BackupRefused."""
        snapshots = SnapshotStore(self.target, self.cluster_id)
        is_own = self.remote is not None and self.remote.url == self.target.url
        if is_own or await snapshots.numbers():
            what = "is the remote store of this cluster" if is_own else "has a backup already"
            raise BackupRefused(f"{self.target.url} {what}: name another directory or prefix.")
        note_records = await capture(self.store, self.keys, self.cluster_id, "")
        topics, refused = {}, []
        for name, state in note_records.topics.items():
            if state.definition.configs["offset.mode"] == "bytes":
                refused.append(name)
                continue
            topics[name] = await self._topic(name, state)
        snapshot = msgspec.structs.replace(
            note_records,
            created_ms=int(time() * 1000),
            topics=topics,
            deleted_topics=[],
            groups={
                group: [row for row in rows if row[0] not in refused]
                for group, rows in note_records.groups.items()
            },
            is_backup=True,
            scheduled=sorted(self._scheduled, key=lambda each: (each.topic, each.partition)),
        )
        await snapshots.write(encode(snapshot), [])
        return self._report(snapshot, refused)

    def _report(self, snapshot: Snapshot, refused: list[str]) -> BackupReport:
        return BackupReport(
            url=self.target.public_url or self.target.url,
            cluster_id=self.cluster_id,
            snapshot_ms=snapshot.created_ms,
            **snapshot.counts(),
            **self._counts,
            scheduled=sum(each.records for each in snapshot.scheduled),
            open=sorted(self._left, key=lambda each: (each.topic, each.partition)),
            left_out=refused,
        )

    async def _topic(self, name: str, state: TopicState) -> TopicState:
        """Back up a topic; return its state in the snapshot."""
        definition = state.definition
        topic = read_topic(self.keys, name, encode_definition(definition), self.configs)
        if topic is None:
            raise BackupRefused(f"The definition of topic {name} cannot be read.")
        partitions = await asyncio.gather(
            *(self._partition(topic, number) for number in range(definition.partitions))
        )
        return TopicState(definition, list(partitions))

    async def _partition(self, topic: Topic, number: int) -> PartitionState:
        async with self._limit:
            cut = await find_cut(self.store, self.keys, topic, number, self.wait_s)
            if cut.end < cut.next:
                self._left.append(Loss(topic.name, number, cut.end, cut.next - 1, "open"))
            start, copied = await PartitionBackup(self, topic, number, cut).run()
        if cut.scheduled:
            count = sum(int(row.partition(b":")[0]) for _, row in cut.scheduled)
            self._scheduled.append(ScheduledRecords(topic.name, number, count, cut.scheduled))
        return PartitionState(start, max(cut.end, start), copied, cut.epoch)

    def count(self, records: int, size: int) -> None:
        """Count a segment that was written."""
        self._counts["segments"] += 1
        self._counts["bytes"] += size
        self.note_records(records)

    def note_records(self, records: int) -> None:
        """Count records that the backup has."""
        self._counts["records"] += records
        self.on_records(records)


@dataclass(eq=False, repr=False)
class PartitionBackup:
    """The records of one partition, from the start to the end of its cut."""

    backup: Backup
    topic: Topic
    number: int
    cut: Cut

    def __post_init__(self) -> None:
        self._start = self.cut.start
        self._copied = -1
        self._collector = Collector(self.backup.store, self.topic, self.number)

    def __str__(self) -> str:
        return f"{self.topic.name}-{self.number}"

    async def run(self) -> tuple[int, int]:
        """Write what is missing; return the log start, and where the last segment ends."""
        end, tries = self.cut.end, 0
        at, records, names = await self._existing()
        if at > self._start:
            self._copied = at
            self.backup.note_records(records)
        while at < end:
            after = await self._copy(at, names)
            if after is None:
                writer = await self._collector.collect(at, SEGMENT_BYTES, end)
                after = writer.last + 1
                if writer.size:
                    await self.write(writer)
            if after > at:
                at, tries = after, 0
                self._copied = after
                continue
            at, tries = await self._after_nothing(at), tries + 1
            if tries > TRIES:
                raise BackupRefused(f"{self} cannot be read from offset {at}: try again.")
        return self._start, self._copied

    async def _existing(self) -> tuple[int, int, set[str]]:
        """Return where the segments in the target end, their records, and the objects' names."""
        target, start = self.backup.target, self.cut.start
        where = (self.backup.cluster_id, self.topic.id, self.number)
        note_records = await list_objects(target, *where, asyncio.Semaphore(AT_ONCE))
        chain = build_chain(note_records, start, -1)
        if chain.end > self.cut.end:
            raise BackupRefused(
                f"{target.url} has segments of another log of {self}: name another directory or "
                "prefix."
            )
        names = {each.name for each in note_records if each.header is not None}
        if not chain.rows or chain.rows[0][0] > start:
            return start, 0, names
        at = chain.holes[0][0] if chain.holes else chain.end
        return at, sum(row[2] for row in chain.rows if row[1] < at), names

    async def _copy(self, at: int, names: set[str]) -> int | None:
        """Copy the tiered segment with the offset; return the offset after it, None without one.

        Raises RemoteStorageError.
        """
        backup = self.backup
        row = await find_segment(backup.store, self.topic.partition(self.number), at)
        if row is None or row.first > at:
            return None
        if backup.remote is None:
            raise BackupRefused(
                f"{self} has records in segments: start the command with the brokers' "
                "remote.log.storage.system.enable and remote.storage.url."
            )
        name = row.object_name(backup.cluster_id, self.topic.id, self.number)
        if name not in names:
            data = await backup.remote.read(name)
            try:
                read_segment(data)
            except CorruptSegment as error:
                raise BackupRefused(f"The segment {name} is corrupt: {error}.") from None
            await backup.target.put(name, data)
            backup.count(row.records, len(data))
        return row.last + 1

    async def write(self, writer: SegmentWriter) -> None:
        """Write records of Redis as a segment."""
        cluster_id = self.backup.cluster_id
        note_records = await self._collector.finish(writer, cluster_id, int(time() * 1000))
        name = object_name(cluster_id, self.topic.id, self.number, writer.first, note_records[0])
        await self.backup.target.put(name, note_records[1])
        self.backup.count(writer.records, sum(map(len, note_records[1])))

    async def _after_nothing(self, at: int) -> int:
        """Return the offset to continue from after a read that found no records."""
        result = await self._collector.read(at, 1)
        if result.error in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
            raise deleted(self.topic)
        if result.error:
            # Retention or DeleteRecords removed them meanwhile, or tiered storage moved them.
            reply = await self.backup.store.run(self.topic.partition(self.number).list_offsets())
            if reply.error:
                raise deleted(self.topic)
            self._start = max(self._start, reply.start)
            await asyncio.sleep(CHECK_S)
            return max(at, self._start)
        is_more = any(each.last < self.cut.end for each in result.entries)
        return at if is_more else self.cut.end
