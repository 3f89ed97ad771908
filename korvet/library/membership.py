"""Membership of a group whose partitions the scripts assign, as Kafka's clients are members.

Rules
- The member joins by the script that brokers run for its heartbeats: Kafka's members and these
  share a group's partitions.
- Heartbeats are sent between records, or by `heartbeat`. Without a broker, members expire by the
  heartbeats of others.
"""

from abc import abstractmethod
from collections.abc import Sequence
from math import inf
from time import monotonic
from typing import Any
from uuid import UUID, uuid4

from korvet.base.errors import ErrorCode
from korvet.groups.assignment import decode_assignment
from korvet.groups.modern import JOIN, GroupLimits, Heartbeat, reason_of
from korvet.library.following import AsyncReader, FollowCalls, PartitionId, R, Reading, Track
from korvet.library.session import check
from korvet.library.values import KorvetError
from korvet.topics.table import Topic

LEAVE = -1
CLIENT = ("korvet-library", "/library")
"""Client id and host of the members."""
_FENCED = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)


class AsyncMember(AsyncReader[R]):
    """A reader of the partitions that a group assigns to it."""

    client = CLIENT
    _survives_deletion = True
    _other_types: str
    """What a group is of that refuses the member."""

    def __init__(
        self, log: FollowCalls, group: str, topics: Sequence[str], reading: Reading
    ) -> None:
        super().__init__(log, reading)
        self.group = group
        self.member_id = str(uuid4())
        self.member_epoch = JOIN
        self._keys = log.keys.group(group)
        self._topics = sorted(set(topics))
        self._target: set[PartitionId] = set()
        self._owned: set[PartitionId] = set()
        self._is_full = True
        """Whether the next heartbeat has all fields: to join, or as the last reply was lost."""
        self._beat_at = self._tick_at = self._load_at = 0.0

    @property
    def assignment(self) -> list[tuple[str, int]]:
        """The partitions that it reads, as topic and number."""
        return sorted((track.topic.name, track.number) for track in self._tracks.values())

    async def heartbeat(self) -> None:
        """Renew the session, from a handler that takes long. Partitions are not revoked here."""
        self._log.ticks_ms = -1
        if monotonic() >= self._beat_at:
            await self._beat()
        if monotonic() >= self._tick_at:
            wait_ms = await self._log.coordinator.tick(self.group)
            self._tick_at = monotonic() + (wait_ms / 1000 + 0.01 if wait_ms >= 0 else inf)

    async def close(self) -> None:
        """Leave the group, and close the connection for messages."""
        try:
            if self.member_epoch != JOIN:
                self.member_epoch = LEAVE
                await self._send(())
                await self._beaten()
        finally:
            self._drop(self._owned)
            self.member_epoch, self._target, self._is_full = JOIN, set(), True
            self._beat_at = self._log.ticks_ms = 0
            await super().close()

    async def _prepare(self) -> None:
        await AsyncMember.heartbeat(self)
        while self._target != self._owned and monotonic() >= self._load_at:
            self._drop(self._owned - self._target)
            await self._load(self._target - self._owned)
            await self._beat()

    def _due(self) -> float:
        return min(self._beat_at, self._tick_at, self._load_at or inf)

    async def _beat(self) -> None:
        """Send a heartbeat, joining again if the member was removed."""
        while True:
            owned = sorted(self._owned)
            was_full, self._is_full = self._is_full, True
            await self._log.refresh()
            reply = await self._send(owned, is_full=was_full)
            if reply.error not in _FENCED:
                break
            self._drop(self._owned)
            self.member_epoch, self._target = JOIN, set()
        if reply.error == ErrorCode.GROUP_ID_NOT_FOUND:
            raise KorvetError(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self.group!r} has {self._other_types}."
            )
        check(reply.error, reason_of(reply.error) or f"Heartbeat in group {self.group!r}")
        self._is_full, self.member_epoch = False, reply.epoch
        if reply.has_assignment:
            rows = decode_assignment(reply.assignment).items()
            self._target = {(topic_id, number) for topic_id, numbers in rows for number in numbers}
        interval_ms = self._interval_ms()
        next_ms = min(interval_ms, reply.next_heartbeat_ms or interval_ms)
        self._beat_at = monotonic() + next_ms / 1000
        await self._beaten()

    async def _beaten(self) -> None:
        """Do what follows each heartbeat."""

    def _heartbeat(self) -> Heartbeat:
        log = self._log
        limits = GroupLimits.of(log.settings)
        return Heartbeat(
            log.coordinator, log.topic_table, limits, lambda: log.topic_table.cached_version
        )

    @abstractmethod
    async def _send(self, owned: Sequence[PartitionId], *, is_full: bool = False) -> Any:
        """Run the script of a heartbeat."""

    @abstractmethod
    def _interval_ms(self) -> int:
        """Return the time between two heartbeats."""

    def _drop(self, partition_ids: set[PartitionId]) -> list[Track]:
        """End the reading of partitions; return those that were read."""
        tracks = [self._remove(partition_id) for partition_id in partition_ids]
        self._owned = self._owned - partition_ids
        return [track for track in tracks if track is not None]

    async def _load(self, partition_ids: set[PartitionId]) -> None:
        """Begin to read partitions; those that cannot be read yet are left for the next call."""
        self._load_at = 0.0
        for topic_id, number in sorted(partition_ids):
            topic = await self._log.topic_table.get_id(UUID(hex=topic_id))
            if topic is None:  # It was deleted, and is revoked soon.
                self._owned = self._owned | {(topic_id, number)}
            elif track := await self._track(topic, number):
                self._owned = self._owned | {(topic_id, number)}
                self._add(track)

    @abstractmethod
    async def _track(self, topic: Topic, number: int) -> Track | None:
        """Return the reading of a partition, None if `_load_at` says when it can begin."""
