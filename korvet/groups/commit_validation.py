"""Validate the partitions of OffsetCommit and TxnOffsetCommit, in Kafka's order.

An unknown topic or partition is refused whatever the group answers; the group is checked next; the
length of the metadata matters only for a partition that the group accepts.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol, TypeVar
from uuid import UUID

from korvet.base.bounded import map_yielding
from korvet.base.errors import ErrorCode
from korvet.groups.offset_commit import Row
from korvet.topics.table import Topic, TopicTable
from korvet.wire.messages.offset_commit import OffsetCommitRequestPartition
from korvet.wire.messages.txn_offset_commit import TxnOffsetCommitRequestPartition
from korvet.wire.structs import PartitionError

T = TypeVar("T")
RequestPartition = OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition


class RequestTopic(Protocol):
    """A topic of either request."""

    @property
    def name(self) -> str: ...
    @property
    def topic_id(self) -> UUID: ...
    @property
    def partitions(self) -> Sequence[RequestPartition]: ...


class ValidatedCommit(NamedTuple):
    """The valid `rows`, and an error code per topic and partition before the group is checked."""

    rows: list[Row]
    errors: list[list[ErrorCode]]

    @property
    def needs_group(self) -> bool:
        """True if the group has to be checked for any partition."""
        return any(error in DEPENDS_ON_GROUP for errors in self.errors for error in errors)


DEPENDS_ON_GROUP = (ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE)


async def validate_commit(
    request: Iterable[RequestTopic], topics: TopicTable, *, max_metadata: int, by_id: bool
) -> ValidatedCommit:
    """Validate all that does not depend on the group; topics are given by id or by name."""
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    rows: list[Row] = []
    errors: list[list[ErrorCode]] = []
    for asked in request:
        if by_id:
            topic = await topics.get_id(asked.topic_id)
        else:
            topic = await topics.get_readable(asked.name)

        def validate(part: RequestPartition, topic: Topic | None = topic) -> ErrorCode:
            error = unknown if topic is None else _error(part, topic, max_metadata)
            if topic is not None and not error:
                rows.append(_row(part, topic))
            return error

        errors.append(await map_yielding(validate, asked.partitions))
    return ValidatedCommit(rows, errors)


def commit_results(
    request: Sequence[RequestTopic],
    commit: ValidatedCommit,
    group_error: ErrorCode,
    topic: Callable[..., T],
) -> list[T]:
    """Return a response's topics with their partitions, once the group's error is known."""
    return [
        topic(
            name=asked.name,
            topic_id=asked.topic_id,
            partitions=[
                PartitionError(
                    partition_index=part.partition_index,
                    error_code=(group_error or error) if error in DEPENDS_ON_GROUP else error,
                )
                for part, error in zip(asked.partitions, errors, strict=True)
            ],
        )
        for asked, errors in zip(request, commit.errors, strict=True)
    ]


def _error(part: RequestPartition, topic: Topic, max_metadata: int) -> ErrorCode:
    if not 0 <= part.partition_index < topic.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if _java_length(part.committed_metadata or "") > max_metadata:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE


def _java_length(text: str) -> int:
    """Return the length in UTF-16 code units, as Java counts it."""
    return len(text) + sum(character > "\uffff" for character in text)


def _row(part: RequestPartition, topic: Topic) -> Row:
    return (
        topic.name,
        part.partition_index,
        part.committed_offset,
        part.committed_leader_epoch,
        topic.id,
        part.committed_metadata or "",
    )
