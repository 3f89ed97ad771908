"""Share sessions (KIP-932): the partitions that a member of a share group fetches from.

Rules
- A session belongs to the connection that opened it, and ends with it. Then the records that its
  member has acquired are released, as Kafka does.
- Sessions are in memory only. A broker that stops releases nothing: the locks of the records are in
  Redis, and expire. A client whose session is unknown opens another.
- Epochs: 0 opens a session and replaces one of the same member, whose records it keeps; -1 closes
  it; any other is the one after the last request's.

`Targets` has the topics that a request names by id: resolved, and checked for READ.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from uuid import UUID

from korvet.base import logfmt
from korvet.base.errors import ErrorCode
from korvet.fetch.sessions import CLOSE, OPEN, SessionError, epoch_after
from korvet.security.session import Session
from korvet.store.errors import StoreError
from korvet.topics.table import Topic, TopicTable

MAX_PARTITIONS = 20_000
"""Max partitions of a session, some 3 MB: a client may name topics that do not exist."""

SharePartitionId = tuple[UUID, int]
"""A topic id and a partition."""

log = logfmt.get("share.sessions")


class ShareSession:
    """The session of one member."""

    def __init__(self, group: str, member: str, owner: Session) -> None:
        self.group = group
        self.member = member
        self.owner = owner
        self.epoch = OPEN + 1
        """The epoch of the next request."""
        self.partitions: dict[SharePartitionId, None] = {}
        """The partitions to fetch from; the next request begins with the first."""
        self.seen: set[SharePartitionId] = set()
        """All partitions that the member has fetched from: those with records to release. They
        exist, so a client cannot add any number of them."""

    def add(self, partitions: Iterable[SharePartitionId]) -> list[SharePartitionId]:
        """Add partitions to fetch from; return those that are new to the session.

        Raises SessionError if there are too many, known or not.
        """
        added = [partition for partition in partitions if partition not in self.partitions]
        if len(self.partitions) + len(added) > MAX_PARTITIONS:
            raise SessionError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        self.partitions.update(dict.fromkeys(added))
        return added

    def forget(self, partitions: Iterable[SharePartitionId]) -> None:
        """Remove partitions; records acquired from them stay acquired."""
        for partition in partitions:
            self.partitions.pop(partition, None)

    def rotate(self) -> None:
        """Move the first partition to the end, so that each is first in turn."""
        if len(self.partitions) > 1:
            first = next(iter(self.partitions))
            self.partitions[first] = self.partitions.pop(first)


class ShareSessions:
    """The share sessions of one broker. `release` frees the records of an ended session."""

    def __init__(
        self, limit: Callable[[], int], release: Callable[[ShareSession], Awaitable[None]]
    ) -> None:
        self._limit = limit
        self._release = release
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._owners: dict[int, list[ShareSession]] = {}
        self._releasing: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, group: str, member: str, owner: Session) -> ShareSession:
        """Return a new session of the member. Raises SessionError."""
        known = self._sessions.pop((group, member), None)
        if known is not None:
            self._disown(known)
        elif len(self._sessions) >= self._limit():
            raise SessionError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        session = ShareSession(group, member, owner)
        if known is not None:
            session.seen = known.seen
        self._sessions[group, member] = session
        if id(owner) not in self._owners:
            self._owners[id(owner)] = []
            owner.on_close.append(lambda: self._connection_closed(owner))
        self._owners[id(owner)].append(session)
        return session

    def take(self, group: str, member: str, epoch: int) -> ShareSession:
        """Return the session that the request continues or closes. Raises SessionError."""
        session = self._sessions.get((group, member))
        if session is None:
            raise SessionError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        if epoch == CLOSE:
            return session
        if epoch != session.epoch:
            raise SessionError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        session.epoch = epoch_after(epoch)
        return session

    async def close(self, session: ShareSession) -> None:
        """End the session at its member's request, and release the member's records."""
        self._forget(session)
        await self._release(session)

    async def finish(self) -> None:
        """Wait until the records of all ended sessions are released."""
        while self._releasing:
            await asyncio.wait(self._releasing)

    def _connection_closed(self, owner: Session) -> None:
        for session in self._owners.pop(id(owner), []):
            self._sessions.pop((session.group, session.member), None)
            task = asyncio.get_running_loop().create_task(self._release_quietly(session))
            self._releasing.add(task)
            task.add_done_callback(self._releasing.discard)

    async def _release_quietly(self, session: ShareSession) -> None:
        try:
            await self._release(session)
        except StoreError as error:
            # The locks expire.
            log.info("share session not released", group=session.group, error=str(error))

    def _forget(self, session: ShareSession) -> None:
        key = (session.group, session.member)
        if self._sessions.get(key) is session:
            del self._sessions[key]
        self._disown(session)

    def _disown(self, session: ShareSession) -> None:
        owned = self._owners.get(id(session.owner), [])
        if session in owned:
            owned.remove(session)


class Targets:
    """Resolves the topic ids of one request. `may_read`: whether its client may read a topic."""

    def __init__(self, topics: TopicTable, may_read: Callable[[str], bool]) -> None:
        self._topics = topics
        self._may_read = may_read
        self._known: dict[UUID, Topic | ErrorCode] = {}

    async def find(self, topic_id: UUID, partition: int) -> Topic | ErrorCode:
        """Return the topic of a partition, or why the client cannot use the partition."""
        found = self._known.get(topic_id)
        if found is None:
            found = self._known[topic_id] = await self._resolve(topic_id)
        if isinstance(found, Topic) and not 0 <= partition < found.partitions:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return found

    async def _resolve(self, topic_id: UUID) -> Topic | ErrorCode:
        topic = await self._topics.get_id(topic_id)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if not self._may_read(topic.name):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        # A range of byte positions is no range of records: clients would count each byte as one.
        return ErrorCode.INVALID_TOPIC_EXCEPTION if topic.is_bytes else topic
