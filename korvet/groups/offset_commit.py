"""Committed offsets: the partitions of a commit, validated, and the offsets as they are stored.

The stored form is that of lua/lib/offset_commit.lua.

OffsetCommit and TxnOffsetCommit are validated in Kafka's order. An unknown topic or partition is
refused whatever the group answers; the group is checked next. The length of the metadata matters
only for a partition that the group accepts.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol, TypeVar
from uuid import UUID

import msgspec

from korvet.base.bounded import map_yielding
from korvet.base.errors import ErrorCode
from korvet.topics.table import Topic, TopicTable
from korvet.wire.messages.offset_commit import OffsetCommitRequestPartition
from korvet.wire.messages.txn_offset_commit import TxnOffsetCommitRequestPartition
from korvet.wire.structs import PartitionError

Row = tuple[str, int, int, int, str, str]
"""One partition of a commit: topic, partition, offset, leader epoch, topic id, metadata."""


class CommittedOffset(msgspec.Struct, frozen=True):
    """The committed offset of one partition. `topic_id` is empty in one written by hand."""

    offset: int
    epoch: int = -1
    time_ms: int = -1
    topic_id: str = ""
    metadata: str = ""

    def is_of(self, topic: Topic) -> bool:
        """Return whether it was made for this topic, not for one of its name that was deleted."""
        return self.topic_id in ("", topic.id)


def parse_commit(raw: bytes) -> CommittedOffset | None:
    """Parse a stored commit; None if it is malformed."""
    parts = raw.split(b" ", 5)
    try:
        if len(parts) < 6:
            return CommittedOffset(int(parts[0]))
        return CommittedOffset(
            int(parts[0]),
            int(parts[1]),
            int(parts[2]),
            parts[4].decode(),
            parts[5].decode("utf-8", "surrogateescape"),
        )
    except ValueError:
        return None


def parse_field(field: bytes) -> tuple[str, int] | None:
    """Parse a field of a group's offsets: topic and partition; None if it is malformed."""
    _, _, partition = field.decode("utf-8", "replace").partition(":")
    topic, _, number = partition.rpartition(":")
    topic = topic.rpartition(":")[2]
    return (topic, int(number)) if topic and number.isdecimal() else None


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
