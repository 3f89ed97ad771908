"""What OffsetCommit and TxnOffsetCommit share: which rows may stand, and what each is told.

In Kafka's order: a topic or partition that is not there is refused whatever the group says; the
group is asked next; metadata is measured last, of those whom the group would let commit.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol
from uuid import UUID

from korvet.bounded import map_yielding
from korvet.errors import ErrorCode
from korvet.topics.table import Topic

if TYPE_CHECKING:
    from korvet.context import Context
from korvet.groups.offset_commit import Row


class Asked(Protocol):
    """One partition of either request."""

    @property
    def partition_index(self) -> int: ...
    @property
    def committed_offset(self) -> int: ...
    @property
    def committed_leader_epoch(self) -> int: ...
    @property
    def committed_metadata(self) -> str | None: ...


class AskedTopic(Protocol):
    """One topic of either request."""

    @property
    def name(self) -> str: ...
    @property
    def topic_id(self) -> UUID: ...
    @property
    def partitions(self) -> Sequence[Asked]: ...


class Plan(NamedTuple):
    """`rows` would be stored; `fates` has, per topic and partition, what is known so far."""

    rows: list[Row]
    fates: list[list[ErrorCode]]

    @property
    def asks(self) -> bool:
        """Whether the group has a say in any of it."""
        return any(fate in UP_TO_THE_GROUP for fates in self.fates for fate in fates)


UP_TO_THE_GROUP = (ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE)


async def plan(topics: Iterable[AskedTopic], context: "Context", *, by_id: bool) -> Plan:
    """What can be said without the group; topics are named by their ids or by their names."""
    longest = context.settings.integer("offset.metadata.max.bytes")
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    rows: list[Row] = []
    fates: list[list[ErrorCode]] = []
    for asked in topics:
        if by_id:
            topic = await context.topics.get_id(asked.topic_id)
        else:
            topic = await context.topics.get(asked.name)

        def judge(part: Asked, topic: Topic | None = topic) -> ErrorCode:
            fate = unknown if topic is None else _fate(part, topic, longest)
            if topic is not None and not fate:
                rows.append(_row(part, topic))
            return fate

        fates.append(await map_yielding(judge, asked.partitions))
    return Plan(rows, fates)


def told(fate: ErrorCode, verdict: ErrorCode) -> ErrorCode:
    """What a partition is told once the group has spoken."""
    return verdict or fate if fate in UP_TO_THE_GROUP else fate


def _fate(part: Asked, topic: Topic, longest: int) -> ErrorCode:
    if not 0 <= part.partition_index < topic.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if _length(part.committed_metadata or "") > longest:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE


def _length(text: str) -> int:
    """As Java counts: a character beyond the first 65,536 is two."""
    return len(text) + sum(character > "\uffff" for character in text)


def _row(part: Asked, topic: Topic) -> Row:
    return (
        topic.name,
        part.partition_index,
        part.committed_offset,
        part.committed_leader_epoch,
        topic.id,
        part.committed_metadata or "",
    )
