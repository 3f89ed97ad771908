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
from korvet.remote_log.collector import Collector
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
        found = await capture(self.store, self.keys, self.cluster_id, "")
        topics, refused = {}, []
        for name, state in found.topics.items():
            if state.definition.configs["offset.mode"] == "bytes":
                refused.append(name)
                continue
            topics[name] = await self._topic(name, state)
        snapshot = msgspec.structs.replace(
            found,
            created_ms=int(time() * 1000),
            topics=topics,
            deleted_topics=[],
            groups={
                group: [row for row in rows if row[0] not in refused]
                for group, rows in found.groups.items()
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
            found = _PartitionBackup(self, topic, number, cut)
            start, copied = await found.run()
        if cut.scheduled:
            count = sum(int(row.partition(b":")[0]) for _, row in cut.scheduled)
            self._scheduled.append(ScheduledRecords(topic.name, number, count, cut.scheduled))
        return PartitionState(start, max(cut.end, start), copied, cut.epoch)

    # Segments.

    async def existing(self, topic: Topic, number: int, cut: Cut) -> tuple[int, int, set[str]]:
        """Return where the segments in the target end, their records, and the objects' names."""
        where = (self.cluster_id, topic.id, number)
        found = await list_objects(self.target, *where, asyncio.Semaphore(AT_ONCE))
        chain = build_chain(found, cut.start, -1)
        if chain.end > cut.end:
            raise BackupRefused(
                f"{self.target.url} has segments of another log of {topic.name}-{number}: name "
                "another directory or prefix."
            )
        names = {each.name for each in found if each.header is not None}
        if not chain.rows or chain.rows[0][0] > cut.start:
            return cut.start, 0, names
        at = chain.holes[0][0] if chain.holes else chain.end
        return at, sum(row[2] for row in chain.rows if row[1] < at), names

    async def copy(self, topic: Topic, number: int, at: int, names: set[str]) -> int | None:
        """Copy the tiered segment with the offset; return the offset after it, None without one.

        Raises RemoteStorageError.
        """
        row = await find_segment(self.store, self.keys, topic.name, number, at)
        if row is None or row.first > at:
            return None
        if self.remote is None:
            raise BackupRefused(
                f"{topic.name}-{number} has records in segments: start the command with the "
                "brokers' remote.log.storage.system.enable and remote.storage.url."
            )
        name = row.object_name(self.cluster_id, topic.id, number)
        if name not in names:
            data = await self.remote.read(name)
            try:
                read_segment(data)
            except CorruptSegment as error:
                raise BackupRefused(f"The segment {name} is corrupt: {error}.") from None
            await self.target.put(name, data)
            self.count(row.records, len(data))
        return row.last + 1

    async def write(self, topic: Topic, number: int, writer: SegmentWriter) -> None:
        """Write records of Redis as a segment."""
        segment_id, parts = await self.collector(topic, number).finish(
            writer, self.cluster_id, int(time() * 1000)
        )
        name = object_name(self.cluster_id, topic.id, number, writer.first, segment_id)
        await self.target.put(name, parts)
        self.count(writer.records, sum(map(len, parts)))

    def collector(self, topic: Topic, number: int) -> Collector:
        """Return the reader of the partition's records in Redis."""
        return Collector(self.store, topic, number)

    def count(self, records: int, size: int) -> None:
        """Count a segment that was written."""
        self._counts["segments"] += 1
        self._counts["bytes"] += size
        self.found(records)

    def found(self, records: int) -> None:
        """Count records that the backup has."""
        self._counts["records"] += records
        self.on_records(records)

    async def start_of(self, topic: Topic, number: int) -> int:
        """Return the log start as it is now."""
        reply = await self.store.run(topic.partition(number).list_offsets())
        if reply.error:
            raise deleted(topic)
        return reply.start


class _PartitionBackup:
    """The records of one partition, from the start to the end of its cut."""

    def __init__(self, backup: Backup, topic: Topic, number: int, cut: Cut) -> None:
        self._backup = backup
        self._topic = topic
        self._number = number
        self._cut = cut
        self._start = cut.start
        self._copied = -1

    async def run(self) -> tuple[int, int]:
        """Write what is missing; return the log start, and where the last segment ends."""
        backup, place, end = self._backup, (self._topic, self._number), self._cut.end
        at, records, names = await backup.existing(*place, self._cut)
        if at > self._start:
            self._copied = at
            backup.found(records)
        collector, tries = backup.collector(*place), 0
        while at < end:
            after = await backup.copy(*place, at, names)
            if after is None:
                writer = await collector.collect(at, SEGMENT_BYTES, end)
                after = writer.last + 1
                if writer.size:
                    await backup.write(*place, writer)
            if after > at:
                at, tries = after, 0
                self._copied = after
                continue
            at, tries = await self._after_nothing(collector, at), tries + 1
            if tries > TRIES:
                raise BackupRefused(f"{_name(*place)} cannot be read from offset {at}: try again.")
        return self._start, self._copied

    async def _after_nothing(self, collector: Collector, at: int) -> int:
        """Return the offset to continue from after a read that found no records."""
        result = await collector.read(at, 1)
        if result.error in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
            raise deleted(self._topic)
        if result.error:
            # Retention or DeleteRecords removed them meanwhile, or tiered storage moved them.
            self._start = max(self._start, await self._backup.start_of(self._topic, self._number))
            await asyncio.sleep(CHECK_S)
            return max(at, self._start)
        is_more = any(each.last < self._cut.end for each in result.entries)
        return at if is_more else self._cut.end


def _name(topic: Topic, number: int) -> str:
    return f"{topic.name}-{number}"
