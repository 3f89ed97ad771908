"""The topics that a request of a share group names by id: resolved, and checked for READ."""

from collections.abc import Callable
from uuid import UUID

from korvet.base.errors import ErrorCode
from korvet.topics.table import Topic, TopicTable


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
