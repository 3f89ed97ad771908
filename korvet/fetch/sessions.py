"""Fetch sessions (KIP-227): the partitions that a client fetches from, and what it knows of them.

Rules
- Sessions are in the memory of one broker process. Any may be lost: with the process, or by
  eviction. Its client gets FETCH_SESSION_ID_NOT_FOUND, and opens another with all its partitions.
- A session belongs to a principal, whose connections may all use it. For others there is none.
- Without a free slot a new session evicts as in Kafka: the least recently used, if that was not
  used for EVICTION_S. Or else the one that is worth least, of those as old as that, unless the new
  one is worth less. Followers are worth most, then more partitions.
- Sessions have at most MAX_BYTES together: beyond, the least recently used are evicted.
- A partition is `due` to be read if the client changed it, or its last read gave records or an
  error. So is one whose log has changed by a message, and each of a small session.
- A message may be lost, and none says that the log start moved: other partitions are due in turn.
- Partitions are read in the order of `due`. Those with records move to its end.
- A client that claims to be a replica gets the answers of a consumer; `ReplicaLog` logs it.
"""

import secrets
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from sys import getsizeof
from time import monotonic
from typing import TypeAlias
from uuid import UUID

import msgspec

from korvet.base import logfmt
from korvet.base.bounded import ByteBounded
from korvet.base.errors import ErrorCode
from korvet.base.metrics.families import Counter
from korvet.fetch.partition_reader import TOPIC_IDS_SINCE, PartitionFetch
from korvet.store.notifications import Notifier
from korvet.topics.table import Topic
from korvet.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData

OPEN, CLOSE = 0, -1
"""Epochs of the first and the last request of a session."""
_LAST_EPOCH = 2**31 - 1
EVICTION_S = 120.0
MAX_BYTES = 1 << 27
PARTITION_BYTES = 1000
"""Approximate memory of a partition in a session, without the topic's name."""
SMALL = 100
"""Partitions of a session that are all read for each request."""
MIN_TURNS_PER_S = 25
MAX_LOGGED = 1000
"""Max pairs of host and replica id that are logged."""
log = logfmt.get("fetch.replica_log")

PartitionKey: TypeAlias = tuple[str | UUID, int]
"""A topic's name or id, and a partition."""


class SessionError(Exception):
    """The request does not belong to a session."""

    def __init__(self, error: ErrorCode) -> None:
        super().__init__(error.name)
        self.error = error


def turns_per_s(partitions: int) -> float:
    """Return how many partitions of a large session are due in a second without a reason."""
    return max(MIN_TURNS_PER_S, 5 * SMALL**2 / partitions)


def epoch_after(epoch: int) -> int:
    """Return the epoch of the request after that one."""
    return 1 if epoch == _LAST_EPOCH else epoch + 1


class FetchedPartition(msgspec.Struct, eq=False):
    """A partition that a client fetches from."""

    name: str
    """The topic's name, empty if the client names it by its id."""
    topic_id: UUID
    request: FetchPartition
    topic: Topic | None = None
    """The topic when the partition was last due."""
    sent: tuple[int, int, int] | None = None
    """High watermark, last stable offset and log start that the client knows."""

    @property
    def key(self) -> PartitionKey:
        return self.name or self.topic_id, self.request.partition


PartitionRow: TypeAlias = PartitionFetch | PartitionData
"""A partition to read, or the response of one that cannot be read."""
FetchedRows: TypeAlias = Mapping[FetchedPartition, PartitionRow]


def partitions_of(topics: Iterable[FetchTopic]) -> Collection[FetchedPartition]:
    """Return the partitions of a request. Of one that is named twice the last row counts."""
    found: dict[PartitionKey, FetchedPartition] = {}
    for topic in topics:
        for row in topic.partitions:
            one = FetchedPartition(topic.topic, topic.topic_id, row)
            found[one.key] = one
    return found.values()


class FetchSession:
    """The session of one client."""

    def __init__(
        self, request: FetchRequest, principal: object, notifier: Notifier, now: float
    ) -> None:
        self.id = 1 + secrets.randbelow(_LAST_EPOCH)
        self.principal = principal
        self.is_follower = request.follower >= 0
        self.by_id = False
        self.epoch = OPEN + 1
        """The epoch of the next request."""
        self.partitions: OrderedDict[PartitionKey, FetchedPartition] = OrderedDict()
        """In the order in which they are due without a reason."""
        self.due: dict[FetchedPartition, None] = {}
        self.size = 0
        """Approximate memory, in bytes."""
        self.opened_at = self.used_at = self._turned_at = now
        self.known: tuple[object, ...] = ()
        """The topic table's version and the decisions on rights that all partitions agree with."""
        self._channels: dict[str, FetchedPartition] = {}
        self.watch = notifier.watch_each()

    @property
    def is_small(self) -> bool:
        return len(self.partitions) <= SMALL

    @property
    def worth(self) -> tuple[bool, int, int]:
        """The order in which sessions are evicted."""
        return self.is_follower, len(self.partitions), self.id

    def has_only(self, one: FetchedPartition) -> bool:
        """Return whether the session has that partition and no other."""
        return len(self.partitions) == 1 and one.key in self.partitions

    def update(self, request: FetchRequest) -> None:
        """Add, change and forget partitions as the client asks."""
        for one in partitions_of(request.topics):
            known = self.partitions.get(one.key)
            if known is None:
                known = self.partitions[one.key] = one
                self.size += PARTITION_BYTES + getsizeof(one.name)
            known.request = one.request
            self.due.setdefault(known)
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                gone = self.partitions.pop((topic.topic or topic.topic_id, index), None)
                if gone is not None:
                    self._forget(gone)

    def _forget(self, one: FetchedPartition) -> None:
        self.size -= PARTITION_BYTES + getsizeof(one.name)
        self.due.pop(one, None)
        if one.topic is not None:
            channel = one.topic.partition(one.request.partition).channel
            if self._channels.get(channel) is one:
                del self._channels[channel]
                self.watch.remove([channel])

    def close(self) -> None:
        """End its subscription."""
        self.watch.remove(self._channels)

    # Which partitions are due.

    def begin(self, now: float) -> Collection[FetchedPartition]:
        """Return the partitions to read for the request that begins."""
        self.changed(self.watch.take())
        if self.is_small:
            for one in self.partitions.values():
                self.due.setdefault(one)
        else:
            self.turn(now)
        return list(self.due)

    def changed(self, channels: Iterable[str]) -> list[FetchedPartition]:
        """Make the partitions of these channels due, and return them."""
        found = [self._channels[name] for name in channels if name in self._channels]
        self.due.update(dict.fromkeys(found))
        return found

    def turn(self, now: float) -> list[FetchedPartition]:
        """Make the partitions due whose turn it is, and return them."""
        count = int(min(now - self._turned_at, 1.0) * turns_per_s(len(self.partitions)))
        found = []
        if count:
            self._turned_at = now
            for _ in range(min(count, len(self.partitions))):
                key = next(iter(self.partitions))
                self.partitions.move_to_end(key)
                found.append(self.partitions[key])
            self.due.update(dict.fromkeys(found))
        return found

    async def watch_all(self, partitions: Iterable[FetchedPartition]) -> None:
        """Subscribe to the partitions' channels before they are read."""
        channels = {
            one.topic.partition(one.request.partition).channel: one
            for one in partitions
            if one.topic is not None
        }
        self._channels.update(channels)
        await self.watch.add(channels)

    def respond(self, rows: FetchedRows, *, rests: Callable[[Topic], bool]) -> FetchedRows:
        """Return the rows with something new to the client, and note what it knows then.

        `rests`: returns whether a change of the topic's partitions is published.
        """
        found = {}
        for one, row in rows.items():
            data = row.response if isinstance(row, PartitionFetch) else row
            if data is None:
                continue
            known = data.high_watermark, data.last_stable_offset, data.log_start_offset
            if data.error_code or data.diverging_epoch.epoch >= 0:
                one.sent, found[one] = None, row
                continue
            assert isinstance(row, PartitionFetch)
            if row.size or one.sent != known:
                one.sent, found[one] = known, row
            if row.size:
                del self.due[one]
                self.due[one] = None
            elif not row.has_more and not self.is_small and rests(row.topic):
                del self.due[one]
        return found


class FetchSessions:
    """The fetch sessions of one broker process."""

    def __init__(
        self,
        notifier: Notifier,
        slots: Callable[[], int],
        evictions: Counter,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._notifier = notifier
        self._slots = slots
        self._evictions = evictions
        self._clock = clock
        self._sessions = ByteBounded[int, FetchSession]("fetch sessions", MAX_BYTES, self._evicted)

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions(self) -> int:
        """The partitions of all sessions."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def find(self, session_id: int, principal: object) -> FetchSession | None:
        """Return the principal's session of that id."""
        found = self._sessions.get(session_id)
        return found if found is not None and found.principal == principal else None

    def begin(self, request: FetchRequest, version: int, principal: object) -> FetchSession | None:
        """Return the session that the request opens or continues, None if it has none.

        Raises SessionError.
        """
        session, epoch = self.find(request.session_id, principal), request.session_epoch
        if epoch in (OPEN, CLOSE):
            if session is not None:
                self._close(session)
            return self._open(request, version, principal) if epoch == OPEN else None
        if session is None:
            raise SessionError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if epoch != session.epoch:
            raise SessionError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.by_id != (version >= TOPIC_IDS_SINCE):
            raise SessionError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.update(request)
        if not session.partitions:
            self._close(session)
            return None
        session.epoch = epoch_after(epoch)
        if not self.touch(session):
            raise SessionError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        return session

    def touch(self, session: FetchSession) -> bool:
        """Note that the session is used. Returns False if it has too many bytes."""
        session.used_at = self._clock()
        self._sessions.put(session.id, session, session.size)
        return self._sessions.get(session.id) is session

    def _open(self, request: FetchRequest, version: int, principal: object) -> FetchSession | None:
        """Return a new session of the request's partitions, None without a slot for it."""
        if not self._slots():
            return None
        session = FetchSession(request, principal, self._notifier, self._clock())
        session.by_id = version >= TOPIC_IDS_SINCE
        session.update(request)
        is_free = len(self) < self._slots() or self._evict_for(session)
        return session if is_free and self.touch(session) else None

    def _evict_for(self, session: FetchSession) -> bool:
        """Evict a session for a new one. Returns False if none is worth less."""
        before = self._clock() - EVICTION_S
        sessions = self._sessions.values()
        found = next(iter(sessions))
        if found.used_at >= before:
            evictable = [
                each
                for each in sessions
                if each.opened_at < before or (session.is_follower and not each.is_follower)
            ]
            if not evictable:
                return False
            found = min(evictable, key=lambda each: each.worth)
            if session.worth < found.worth:
                return False
        self._sessions.pop(found.id)
        self._evicted(found)
        return True

    def _evicted(self, session: FetchSession) -> None:
        self._evictions.add()
        session.close()

    def _close(self, session: FetchSession) -> None:
        self._sessions.pop(session.id)
        session.close()


class ReplicaLog:
    """Logs each pair of host and replica id once, of clients that claim to be replicas."""

    def __init__(self) -> None:
        self._logged: set[tuple[str, int]] = set()

    def note(self, replica_id: int, host: str, client_id: str | None) -> None:
        """Log a request with a replica id."""
        key = (host, replica_id)
        if key in self._logged or len(self._logged) >= MAX_LOGGED:
            return
        self._logged.add(key)
        log.info(
            "replica id ignored: replicas are answered like consumers",
            client=host,
            client_id=client_id,
            replica_id=replica_id,
        )
