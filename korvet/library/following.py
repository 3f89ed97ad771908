"""Read partitions as they grow: their records in turn, then a wait for the next append.

Rules
- A wait ends with a message on a partition's channel, as that of a Fetch. Entries that another
  Redis client has added publish none: partitions of layout `record` are read again every RECHECK_S,
  and less often if they are more than RECHECK_PARTITIONS.
- A reader of records that Redis has lost warns of it, and continues at the first lost offset.
- An iteration that has raised an exception can be continued: nothing that it did not return is
  skipped.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import Any, Generic, NamedTuple, Self, TypeVar

from korvet.base import logfmt
from korvet.base.errors import ErrorCode
from korvet.library.publishing import PublishCalls
from korvet.library.record_calls import FETCH_BYTES
from korvet.library.session import check_partition
from korvet.library.values import KorvetError, LostRecords, StoredRecord
from korvet.log.position import EARLIEST, LATEST, Position
from korvet.store.notifications import Notifier, Subscription
from korvet.store.redis_py import PubSubListener
from korvet.topics.table import Topic

RECHECK_S, RECHECK_PARTITIONS = 0.2, 100
MAX_WAIT_S = 5.0
"""Longest wait, s: a message may be lost if a connection breaks."""
_DELETED = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

logger = logfmt.get("library.reader")

R = TypeVar("R", bound=StoredRecord)
PartitionId = tuple[str, int]
"""Topic id and partition number."""


class NotifierListener:
    """The news of channels, on a connection of the kind that brokers use."""

    def __init__(self, url: str, shared: Notifier | None = None) -> None:
        self._url = url
        self._notifier = shared
        self._is_shared = shared is not None
        self._subscription: Subscription | None = None

    async def listen(self, channels: set[str]) -> None:
        """Subscribe to these channels alone."""
        if self._notifier is None:
            self._notifier = await Notifier.connect(self._url)
        known = self._subscription
        if known is None or set(known.channels) != channels:
            # Those published before the subscription began are read now.
            self._subscription = self._notifier.listen(channels)
            await self._subscription.__aenter__()
            self._subscription.notify()
            if known is not None:
                await known.__aexit__()

    async def wait(self, timeout_s: float) -> set[str]:
        """Return the channels with news, after that time at the latest."""
        assert self._subscription is not None, "listen comes first"
        return await self._subscription.wait(timeout_s)

    async def close(self) -> None:
        """End the subscription, and close the connection unless others share it."""
        if self._subscription is not None:
            await self._subscription.__aexit__()
        if self._notifier is not None and not self._is_shared:
            await self._notifier.close()


@dataclass(eq=False, repr=False)
class Track:
    """The reading of one partition."""

    topic: Topic
    number: int
    offset: int
    """Where the next record is looked for."""
    committed: int = -1
    """What the reader's group has committed, -1 for nothing."""
    is_read: bool = False
    """True from the first record that was returned after the last commit."""

    @property
    def partition_id(self) -> PartitionId:
        return self.topic.id, self.number

    @property
    def channels(self) -> tuple[str, ...]:
        """The channels on which news of records is published."""
        return (self.topic.partition(self.number).channel,)


class Reading(NamedTuple):
    """The settings of a reader."""

    reset: Position
    """Where a partition begins of which no offset is known."""
    committed: bool
    idle_s: float | None


class AsyncReader(ABC, Generic[R]):
    """Records of partitions, as they arrive: iterate it with `async for`.

    The iteration ends once no record has arrived for `idle_s` seconds, by default never.
    """

    _recheck_s = RECHECK_S
    _survives_deletion = False
    """Whether the reading of other partitions continues if a topic is deleted."""

    def __init__(self, log: PublishCalls, reading: Reading) -> None:
        self._log = log
        self._reset = reading.reset
        self._is_committed = reading.committed
        self._idle_s = inf if reading.idle_s is None else reading.idle_s
        self._tracks: dict[PartitionId, Track] = {}
        self._unread: dict[PartitionId, None] = {}
        """The partitions that may have records, in the order in which they are read."""
        self._rows: deque[R] = deque()
        self._current: Track | None = None
        self._after = 0
        """The offset after the rows of the current partition."""
        self._recheck_at = 0.0
        store: Any = log.store
        self._listener: NotifierListener | PubSubListener = (
            NotifierListener(log.url, log.notifier)
            if log.url or log.notifier
            else PubSubListener(store.pubsub)
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> R:
        record = await self.next()
        if record is None:
            raise StopAsyncIteration
        return record

    async def next(self, idle_s: float | None = None) -> R | None:
        """Return the next record, None if none has arrived for `idle_s`, by default its own."""
        until = monotonic() + (self._idle_s if idle_s is None else idle_s)
        while True:
            await self._prepare()
            record = await self._take()
            if record is not None:
                return record
            now = monotonic()
            if now >= until:
                self._unread |= dict.fromkeys(self._tracks)
                return None
            await self._wait(max(0.0, min(until, self._due()) - now))

    async def close(self) -> None:
        """Close the connection for messages."""
        await self._listener.close()

    @abstractmethod
    async def _prepare(self) -> None:
        """Do what is due before the next record."""

    @abstractmethod
    def _due(self) -> float:
        """Return the time of the clock at which `_prepare` is due without a record."""

    def _add(self, track: Track) -> None:
        self._tracks[track.partition_id] = track
        self._unread[track.partition_id] = None

    def _remove(self, partition_id: PartitionId) -> Track | None:
        self._unread.pop(partition_id, None)
        track = self._tracks.pop(partition_id, None)
        if track is not None and track is self._current:
            self._rows.clear()
        return track

    async def _take(self) -> R | None:
        """Return the next record, None if all partitions were read to their ends."""
        while not self._rows and self._unread:
            await self._read(self._tracks[next(iter(self._unread))])
        if not self._rows:
            return None
        track = self._current
        assert track is not None, "rows are those of a partition"
        record = self._rows.popleft()
        self._note_returned(track, record)
        return record

    def _note_returned(self, track: Track, record: R) -> None:
        """Note that the record is the application's from now on."""
        track.offset = record.offset + 1 if self._rows else self._after
        track.is_read = True

    async def _read(self, track: Track) -> None:
        """Read the next rows of a partition, which is then the last to be read."""
        topic, number = track.topic, track.number
        try:
            found = await self._log.fetch_from(
                topic, number, track.offset, FETCH_BYTES, self._is_committed
            )
        except LostRecords as lost:
            logger.warning(str(lost))
            track.offset = lost.first
            return
        except KorvetError as error:
            if error.error in _DELETED and self._survives_deletion:
                del self._unread[track.partition_id]
                self._log.topic_table.invalidate()
                return
            if error.error is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            track.offset = await self._log.find_offset(topic.name, number, self._reset)
            return
        del self._unread[track.partition_id]
        if found.next_offset == track.offset:
            return
        self._unread[track.partition_id] = None
        if found.records:
            records: Sequence[Any] = found.records
            self._rows.extend(records)
            self._current, self._after = track, found.next_offset
        else:
            track.offset = found.next_offset

    async def _wait(self, timeout_s: float) -> None:
        """Wait for news of a partition, at most that long."""
        partition_ids = {
            channel: partition_id
            for partition_id, track in self._tracks.items()
            for channel in track.channels
        }
        channels = set(partition_ids) or {self._log.keys.topics_channel()}
        await self._listener.listen(channels | self._also())
        native = [
            partition_id for partition_id, track in self._tracks.items() if not track.topic.is_batch
        ]
        recheck_s = self._recheck_s * max(1.0, len(native) / RECHECK_PARTITIONS) if native else inf
        changed = await self._listener.wait(min(timeout_s, recheck_s, MAX_WAIT_S))
        self._note_news(partition_ids, changed)
        now = monotonic()
        if now >= self._recheck_at:
            self._recheck_at = now + min(recheck_s, MAX_WAIT_S)
            self._unread |= dict.fromkeys(native if native else self._tracks)

    def _also(self) -> set[str]:
        """Return further channels to listen to."""
        return set()

    def _note_news(self, partition_ids: Mapping[str, PartitionId], changed: set[str]) -> None:
        """Read the partitions again whose channels had messages."""
        self._unread |= {
            partition_id: None for name, partition_id in partition_ids.items() if name in changed
        }


class AsyncFollower(AsyncReader[StoredRecord]):
    """A reader without a group."""

    def __init__(
        self, log: PublishCalls, topic: Topic, offsets: Mapping[int, int], reading: Reading
    ) -> None:
        super().__init__(log, reading)
        for number, offset in offsets.items():
            self._add(Track(topic, number, offset))

    async def _prepare(self) -> None:
        """Do nothing: it has no membership."""

    def _due(self) -> float:
        return inf


class FollowCalls(PublishCalls):
    """Follow a topic."""

    async def follow(
        self,
        topic: str,
        start: Position = LATEST,
        *,
        partition: int | None = None,
        committed: bool = True,
        idle_s: float | None = None,
    ) -> AsyncFollower:
        """Return the records of a topic from a position on, as they arrive.

        The iteration ends once no record has arrived for `idle_s` seconds, by default never.
        `committed` leaves out aborted transactions, and waits for the end of open ones. Records
        that were deleted before they were read are skipped.
        """
        found = await self.find_topic(topic)
        if partition is not None:
            check_partition(found, partition)
        numbers = range(found.partitions) if partition is None else [partition]
        offsets = {number: await self.find_offset(topic, number, start) for number in numbers}
        return AsyncFollower(self, found, offsets, Reading(EARLIEST, committed, idle_s))
