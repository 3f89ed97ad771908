"""Consume as a member of a share group (KIP-932), and acknowledge in the caller's own step.

Rules
- Records are acquired and acknowledged by the scripts that brokers run for ShareFetch and
  ShareAcknowledge: Kafka's share consumers and these share a group's records.
- A step WATCHes the key `share_lost` of its partition, which every script writes that takes records
  from a member. A record whose lock has expired is the member's until then: so an acknowledgement
  in MULTI is not refused unless the WATCH has failed.
- After a step whose outcome is unknown, share.hold writes that key, too: Redis can no longer
  execute the step. If the member still has the record, it was not acknowledged, and the iteration
  returns it again. A step that began with `check` and was not executed has failed, too.
- A record that was returned, and neither acknowledged nor checked, stays acquired until its lock
  expires.
- No broker may run: members append scheduled records that are due, and copy dead letters.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from math import inf
from time import monotonic
from typing import Any, Literal

from korvet.base import logfmt
from korvet.base.bounded import chunks
from korvet.base.errors import TOPIC_GONE, ErrorCode
from korvet.fetch.partition_reader import ResponseMemory
from korvet.groups.share_group import ShareGroupConfig, share_group_config
from korvet.library.consuming import ConsumeCalls
from korvet.library.following import PartitionId, Reading, Track
from korvet.library.membership import CLIENT, AsyncMember
from korvet.library.publishing import OnRefused, Queued, check_queues, enqueue
from korvet.library.record_calls import FETCH_BYTES
from korvet.library.session import check
from korvet.library.values import AcquiredRecord, KorvetError, StoredRecord
from korvet.log.layouts import records_in
from korvet.log.position import EARLIEST
from korvet.log.read_result import ReadResult
from korvet.scripts.call import Call
from korvet.scripts.calls.partition import ShareAcknowledgeReply, ShareAcquireReply
from korvet.share.acquire_values import (
    AcquireServices,
    Budget,
    ReadPosition,
    ShareFetchParams,
    entries_with,
)
from korvet.share.dead_letters import RETRY_S, CopyFailed, DeadLetters
from korvet.share.partition_acquire import TRIES, PartitionAcquire
from korvet.share.service import Acknowledge, TypedRange, acknowledgement, release_all
from korvet.store.errors import StoreError
from korvet.store.redis_py import result_of
from korvet.topics.table import Topic
from korvet.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from korvet.wire.records import BadBatch

HELD_PER_CALL = 500
"""Records of one call of share.hold."""
DUE_ROWS, DUE_BYTES = 500, 1 << 20
"""Rows and bytes of scheduled records that one call appends."""
_LOST = "The member no longer has the record, which another may get: continue the iteration."

Kind = Literal["accept", "release", "reject"]
_TYPES: Mapping[Kind, int] = {
    "accept": int(Acknowledge.ACCEPT),
    "release": int(Acknowledge.RELEASE),
    "reject": int(Acknowledge.REJECT),
}

logger = logfmt.get("library.share")


class State(Enum):
    """A stage of a record that the member has acquired."""

    WAITING = auto()
    """It was not returned yet."""
    RETURNED = auto()
    UNCHANGED = auto()
    """A step of it has failed, without effect."""
    UNKNOWN = auto()
    """A step of it may have happened, or may yet happen."""


@dataclass(eq=False, repr=False)
class ShareTrack(Track):
    """The reading of one share partition."""

    position: ReadPosition = field(default_factory=lambda: ReadPosition(asyncio.Lock()))
    expire_at: float = inf
    """When a lock expires or a delay ends, by the clock of `monotonic`."""
    due_at: float = 0.0
    """When scheduled records are due."""

    @property
    def channels(self) -> tuple[str, ...]:
        keys = self.topic.partition(self.number)
        return keys.channel, keys.share


@dataclass(eq=False, repr=False)
class Holding:
    """A record that the member has acquired."""

    track: ShareTrack
    record: AcquiredRecord
    state: State = State.WAITING


Key = tuple[str, int, int]
"""A record's topic, partition and offset."""


def _key(record: StoredRecord) -> Key:
    return record.topic, record.partition, record.offset


class AcknowledgeReceipt(Queued):
    """The result of an acknowledgement, known after the pipeline was executed.

    Until then `record` raises RuntimeError. Afterwards it raises KorvetError if the acknowledgement
    was refused, or if replicas or disk do not have it in time; and what `execute` raised.
    """

    def __init__(
        self, consumer: "AsyncShareConsumer", holding: Holding, call: Call[ShareAcknowledgeReply]
    ) -> None:
        super().__init__([call])
        self._consumer = consumer
        self._holding = holding

    @property
    def record(self) -> AcquiredRecord:
        """The acknowledged record. Raises if the acknowledgement was refused."""
        (reply,) = self._settled()
        check(reply.error, _LOST)
        self._check_durable("The acknowledgement is")
        return self._holding.record

    def _add_reply(self, raw: object) -> None:
        super()._add_reply(raw)
        (reply,) = self._replies
        if isinstance(reply, ShareAcknowledgeReply):
            self._consumer._settle(self._holding, reply)
        else:
            self._consumer._doubt(self._holding, State.UNKNOWN)

    def _fail(self, error: Exception) -> None:
        super()._fail(error)
        # redis-py raises WatchError after a broken connection, too: from another exception then.
        is_refused = type(error).__name__ == "WatchError" and error.__context__ is None
        self._consumer._doubt(self._holding, State.UNCHANGED if is_refused else State.UNKNOWN)


class _Acquire(PartitionAcquire):
    """An acquire whose records are decoded."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.records: list[AcquiredRecord] = []
        self.gaps: list[int] = []
        """Acquired offsets without a record: the log was compacted."""
        self.reads = 0

    async def _acquire_from(self, result: ReadResult) -> bool:
        self.reads += 1
        return await super()._acquire_from(result)

    def _respond(self, result: ReadResult, reply: ShareAcquireReply, offset: int) -> None:
        flat = iter(reply.runs)
        runs = list(zip(flat, flat, flat, strict=True))
        # A committed read needs the markers, which hold no record.
        entries = result.entries if result.aborted else entries_with(result.entries, runs)
        try:
            rows = {row[0]: row for row in records_in(self.topic, entries, result.aborted)}
        except BadBatch as bad:
            self.acquired.error = bad.error
            return
        for first, last, deliveries in runs:
            for at in range(first, last + 1):
                if at in rows:
                    record = AcquiredRecord(self.topic.name, self.partition, *rows[at], deliveries)
                    self.records.append(record)
                else:
                    self.gaps.append(at)


class AsyncShareConsumer(AsyncMember[AcquiredRecord]):
    """A member of a share group: iterate it with `async for`, and acknowledge each record.

    An object belongs to one task at a time.
    """

    _other_types = "another type"
    _recheck_s = 1.0

    def __init__(
        self, log: ConsumeCalls, group: str, topics: Sequence[str], reading: Reading, records: int
    ) -> None:
        super().__init__(log, group, topics, reading)
        self._max_records = records
        self._holdings: dict[Key, Holding] = {}
        """The acquired records, by topic, partition and offset."""
        self._begun: dict[Key, Holding] = {}
        """Those in a step that has begun with `check`, or failed."""
        self._again: deque[AcquiredRecord] = deque()
        """Records to return once more."""
        self._renew_at = inf
        """When to renew the locks of the records that wait."""
        self._letters: dict[PartitionId, Track] = {}
        """Partitions with dead letters to copy."""
        self._copy_at = 0.0
        self._copier = DeadLetters(log.node, log.reader, log.append_batch, self._create_queue)
        self._services = AcquireServices(log.store, log.reader, self._notice, ResponseMemory())

    def hash_tag(self, record: StoredRecord) -> str:
        """Return the hash tag of a record's partition: that of a step that acknowledges it."""
        return self._find(record).track.topic.partition(record.partition).stream

    async def acknowledge(self, record: StoredRecord, kind: Kind = "accept") -> None:
        """Accept, release or reject a record. Raises KorvetError if the member has lost it.

        A released record is delivered again, a rejected one is a dead letter.
        """
        holding = self._find(record)
        try:
            reply = await self._log.store.run(self._call(holding, kind))
        except BaseException:
            self._doubt(holding, State.UNKNOWN)
            raise
        self._settle(holding, reply)
        check(reply.error, _LOST)

    async def acknowledge_with(
        self,
        pipe: Any,
        record: StoredRecord,
        kind: Kind = "accept",
        *,
        on_refused: OnRefused = "receipt",
        durable: str | None = None,
    ) -> AcknowledgeReceipt:
        """Queue the acknowledgement of a record on a pipeline of redis-py or valkey-py.

        With `on_refused="error"` a refusal is an error reply, which `execute` raises. MULTI does
        not undo the commands before it: call `check` first. `durable` is that of `publish`.
        """
        durability = check_queues(pipe, durable)
        holding = self._find(record)
        call = self._call(holding, kind)
        receipt = AcknowledgeReceipt(self, holding, call)
        enqueue(pipe, receipt, [call], on_refused, durability, self._log)
        return receipt

    @contextmanager
    def acknowledge_args(
        self, record: StoredRecord, kind: Kind = "accept"
    ) -> Iterator[tuple[list[str], list[str]]]:
        """Yield KEYS and ARGV that acknowledge a record, for `korvet.acknowledge` in a script.

        If the block raises, the record is returned again unless the script has acknowledged it.
        """
        holding = self._find(record)
        call = self._call(holding, kind)
        try:
            yield list(call.keys), [str(arg) for arg in call.args]
        except BaseException:
            self._doubt(holding, State.UNKNOWN)
            raise
        self._forget(holding)

    async def check(self, pipe: Any, *records: StoredRecord) -> None:
        """Begin a step: make a pipeline's next EXEC do nothing if the member loses records.

        WATCHes a key of the records' partitions: call it before `pipe.multi()`. Raises KorvetError
        if the member no longer has one of them; then continue the iteration. A step that is not
        executed before the next record is wanted has failed: its records are returned again.
        """
        found = [self._find(record) for record in records]
        if not found:
            raise KorvetError(ErrorCode.INVALID_REQUEST, "A step names its records.")
        for holding in found:
            self._doubt(holding, holding.state)
        tracks = {holding.track.partition_id: holding.track for holding in found}.values()
        keys = [track.topic.partition(track.number).share_lost for track in tracks]
        await result_of(pipe.watch(*keys))
        if await self._keep(found):
            raise KorvetError(ErrorCode.INVALID_RECORD_STATE, _LOST)

    async def heartbeat(self) -> None:
        """Renew the session, and the locks of all records, from a handler that takes long."""
        await self._log.refresh()
        await super().heartbeat()
        await self._renew(list(self._holdings.values()))

    async def close(self) -> None:
        """Release the records, leave the group, and close the connection for messages."""
        try:
            await self._copy_dead_letters()
            await self._release()
        finally:
            self._holdings.clear()
            self._begun.clear()
            self._again.clear()
            self._rows.clear()
            await super().close()

    # Records.

    def _find(self, record: StoredRecord) -> Holding:
        holding = self._holdings.get(_key(record))
        if holding is None:
            raise KorvetError(ErrorCode.INVALID_RECORD_STATE, _LOST)
        return holding

    def _settle(self, holding: Holding, reply: ShareAcknowledgeReply) -> None:
        """Take the reply to an acknowledgement: the record is finished, or lost."""
        self._forget(holding)
        track = holding.track
        if reply.error:
            track.position.next = -1
        self._notice(self.group, self._config, track.topic, track.number, reply.dead_letters)

    def _forget(self, holding: Holding) -> None:
        key = _key(holding.record)
        self._begun.pop(key, None)
        if self._holdings.get(key) is holding:
            del self._holdings[key]

    def _doubt(self, holding: Holding, state: State) -> None:
        """Look at the record again before the next one is returned."""
        holding.state = state
        self._begun[_key(holding.record)] = holding

    async def _recover(self) -> None:
        """End the steps that have failed, and return those of their records that were not lost."""
        begun, self._begun = list(self._begun.values()), {}
        try:
            certain = [holding for holding in begun if holding.state is State.UNCHANGED]
            await self._keep(certain)
            await self._keep(
                [holding for holding in begun if holding not in certain], ends_steps=True
            )
        except BaseException:
            for holding in begun:
                self._doubt(holding, holding.state)
            raise
        for holding in begun:
            if self._holdings.get(_key(holding.record)) is holding:
                holding.state = State.RETURNED
                self._again.append(holding.record)

    async def _keep(
        self, records: Sequence[Holding], *, ends_steps: bool = False, lock_ms: int = 0
    ) -> set[int]:
        """Forget those of the records that the member has lost; return their offsets."""
        lost = set()
        partitions: dict[ShareTrack, list[Holding]] = {}
        for holding in sorted(records, key=lambda holding: holding.record.offset):
            partitions.setdefault(holding.track, []).append(holding)
        for track, all_of in partitions.items():
            for some in chunks(all_of, HELD_PER_CALL):
                call = track.topic.partition(track.number).share_hold(
                    [holding.record.offset for holding in some],
                    group=self.group,
                    member=self.member_id,
                    ends_steps=int(ends_steps),
                    lock_ms=lock_ms,
                )
                kept = set((await self._log.store.run(call)).held)
                for holding in some:
                    if holding.record.offset not in kept:
                        lost.add(holding.record.offset)
                        self._forget(holding)
                        track.position.next = -1
        return lost

    async def _renew(self, records: Sequence[Holding]) -> None:
        """Renew the locks of records."""
        if records and self._config.renew_acknowledge_enable:
            began = monotonic()
            await self._keep(records, lock_ms=self._config.record_lock_duration_ms)
            self._renew_at = began + self._config.record_lock_duration_ms / 2000

    async def _take(self) -> AcquiredRecord | None:
        if self._again:
            return self._again.popleft()
        if self._rows and monotonic() >= self._renew_at:
            await self._renew([self._find(record) for record in self._rows])
            self._rows = deque(row for row in self._rows if _key(row) in self._holdings)
        return await super()._take()

    def _note_returned(self, track: Track, record: AcquiredRecord) -> None:
        self._find(record).state = State.RETURNED

    async def _read(self, track: Track) -> None:
        """Acquire records of a partition, which is then the last to be read."""
        assert isinstance(track, ShareTrack)
        config, position = self._config, track.position
        acquire = _Acquire(
            self._services,
            ShareFetchParams(
                self.group, self.member_id, config, exact=True, batch_size=0, min_bytes=1
            ),
            track.topic,
            track.number,
            position,
            Budget(self._max_records, FETCH_BYTES),
        )
        began = monotonic()
        try:
            acquired = await acquire.run()
        except BaseException:
            position.next = -1
            raise
        del self._unread[track.partition_id]
        track.expire_at = began + (acquired.wait_ms + 1) / 1000 if acquired.wait_ms >= 0 else inf
        if acquired.error in TOPIC_GONE:
            self._log.topic_table.invalidate()
            return
        check(acquired.error, f"Partition {track.number} of {track.topic.name!r} cannot be read")
        if acquire.gaps:
            ranges = [(at, at, int(Acknowledge.GAP)) for at in acquire.gaps]
            await self._log.store.run(self._acknowledgement(track, ranges))
        # After so many reads other members may have been faster each time.
        if acquire.records or acquire.reads == TRIES:
            self._unread[track.partition_id] = None
        self._rows.extend(acquire.records)
        self._current = track
        for record in acquire.records:
            self._holdings[_key(record)] = Holding(track, record)
        self._renew_at = began + config.record_lock_duration_ms / 2000

    def _call(self, holding: Holding, kind: Kind) -> Call[ShareAcknowledgeReply]:
        offset = holding.record.offset
        if kind == "release":  # It may be available below the position.
            holding.track.position.next = -1
        return self._acknowledgement(holding.track, [(offset, offset, _TYPES[kind])])

    def _acknowledgement(
        self, track: ShareTrack, ranges: Sequence[TypedRange]
    ) -> Call[ShareAcknowledgeReply]:
        partition = track.topic.partition(track.number)
        return acknowledgement(
            partition, ranges, self.group, self.member_id, self._config, fenced=True
        )

    async def _release(self) -> None:
        """Release all records, as the end of a share session does."""
        tracks = {holding.track.partition_id: holding.track for holding in self._holdings.values()}
        for track in tracks.values():
            partition = track.topic.partition(track.number)
            await release_all(self._log.store, partition, self.group, self.member_id, self._config)

    # Membership.

    @property
    def _config(self) -> ShareGroupConfig:
        return share_group_config(self._log.dynamic_configs, self._log.settings, self.group)

    async def _prepare(self) -> None:
        if self._begun:
            await self._recover()
        await self._log.refresh()
        await super()._prepare()
        await self._append_due()
        if self._letters and monotonic() >= self._copy_at:
            await self._copy_dead_letters()

    def _due(self) -> float:
        moments: Iterable[float] = (
            min(track.expire_at, track.due_at)
            for track in self._tracks.values()
            if isinstance(track, ShareTrack)
        )
        return min(super()._due(), self._copy_at if self._letters else inf, *moments)

    async def _send(self, owned: Sequence[PartitionId], *, is_full: bool = False) -> Any:
        request = ShareGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.member_epoch,
            subscribed_topic_names=self._topics if is_full else None,
        )
        settings = self._log.settings
        return await self._heartbeat().run_share(request, settings, CLIENT, self._config)

    def _interval_ms(self) -> int:
        return self._config.heartbeat_interval_ms

    async def _track(self, topic: Topic, number: int) -> Track:
        return ShareTrack(topic, number, -1)

    def _remove(self, partition_id: PartitionId) -> Track | None:
        # The records that were acquired stay the member's.
        self._unread.pop(partition_id, None)
        return self._tracks.pop(partition_id, None)

    # News, scheduled records, dead letters.

    def _also(self) -> set[str]:
        schedules = any(track.topic.policy.schedules for track in self._tracks.values())
        return {self._log.keys.schedule_channel()} if schedules else set()

    def _note_news(self, partition_ids: Mapping[str, PartitionId], changed: set[str]) -> None:
        super()._note_news(partition_ids, changed)
        now, has_schedule = monotonic(), self._log.keys.schedule_channel() in changed
        for partition_id, track in self._tracks.items():
            assert isinstance(track, ShareTrack)
            if track.expire_at <= now:
                self._unread[partition_id] = None
            if has_schedule and track.topic.policy.schedules:
                track.due_at = 0.0

    async def _append_due(self) -> None:
        """Append the scheduled records that are due."""
        for track in self._tracks.values():
            assert isinstance(track, ShareTrack)
            if not track.topic.policy.schedules:
                track.due_at = inf
            while monotonic() >= track.due_at:
                reply = await self._log.store.run(
                    track.topic.partition(track.number).schedule_append_due(
                        stamp=int(track.topic.policy.log_append_time),
                        max_rows=DUE_ROWS,
                        max_bytes=DUE_BYTES,
                    )
                )
                if reply.records:
                    self._unread[track.partition_id] = None
                track.due_at = monotonic() + reply.wait_ms / 1000 if reply.wait_ms >= 0 else inf

    def _notice(
        self, group: str, config: ShareGroupConfig, topic: Topic, partition: int, letters: int
    ) -> None:
        if letters > 0 and config.has_dead_letters:
            self._letters[topic.id, partition] = Track(topic, partition, -1)

    async def _copy_dead_letters(self) -> None:
        """Copy dead letters, as a broker does."""
        for partition_id, track in list(self._letters.items()):
            try:
                while await self._copier.copy(self.group, self._config, track.topic, track.number):
                    pass
                del self._letters[partition_id]
            except (CopyFailed, StoreError) as error:
                self._copy_at = monotonic() + RETRY_S
                logger.warning_again(
                    "dead letters not copied",
                    group=self.group,
                    topic=track.topic.name,
                    partition=track.number,
                    queue=self._config.dead_letter_topic,
                    reason=str(error),
                )

    async def _create_queue(self, name: str, configs: Mapping[str, str]) -> Topic | None:
        try:
            await self._log.create_topic(name, configs=configs)
        except KorvetError:
            return None
        return await self._log.topic_table.get(name)


class ShareCalls(ConsumeCalls):
    """Consume as a member of a share group."""

    async def share_consumer(
        self,
        group: str,
        topics: Sequence[str],
        *,
        max_records: int = 100,
        idle_s: float | None = None,
    ) -> AsyncShareConsumer:
        """Join a share group (KIP-932) and return its records in these topics, as they arrive.

        `max_records` are acquired at once: 1 is best if a handler takes long. Each is the member's
        for share.record.lock.duration.ms. A new group begins where share.auto.offset.reset says,
        at the end by default. The iteration ends once no record has arrived for `idle_s` seconds,
        by default never.
        """
        names = [topics] if isinstance(topics, str) else topics
        for name in names:
            topic = await self.find_topic(name)
            if topic.is_bytes:
                raise KorvetError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION,
                    f"{name!r} has offset.mode=bytes: such topics have no share groups.",
                )
        reading = Reading(EARLIEST, False, idle_s)
        consumer = AsyncShareConsumer(self, group, names, reading, max_records)
        await consumer._prepare()
        return consumer
