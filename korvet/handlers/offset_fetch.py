"""OffsetFetch. Return groups' committed offsets.

Behaviour
- GROUP_AUTHORIZATION_FAILED per group, TOPIC_AUTHORIZATION_FAILED per partition; null topics leave
  out the topics that the client may not describe
- offset -1, empty metadata and no error without a commit, and for an unknown group or topic;
  UNKNOWN_TOPIC_ID for an unknown id
- a request with a member of a consumer group (KIP-848): UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH
- null topics: all commits of the group
- INVALID_REQUEST for a group or a partition that is listed more than ten times
- require_stable: UNSTABLE_OFFSET_COMMIT for offsets that wait for the end of a transaction. Offsets
  that have waited longer than transaction.max.timeout.ms for a transaction that no transactional id
  has are discarded
- a commit of an earlier topic of the same name is ignored
Versions
- v2 null asks for all, v5 leader epochs, v7 require_stable, v8 several groups, v9 member
  epochs, v10 topic ids
"""

from collections.abc import Iterable
from uuid import UUID

from msgspec.structs import replace

from korvet.base.bounded import ITEMS_PER_YIELD, RepeatLimit, chunks, gather_named, map_yielding
from korvet.base.errors import ErrorCode
from korvet.context import Context
from korvet.groups.offset_commit import CommittedOffset, parse_commit, parse_field
from korvet.security.acl import Operation, ResourceType
from korvet.topics.table import Topic
from korvet.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

NO_OFFSET = CommittedOffset(-1)
GROUP_ERROR_SINCE = 2
"""The first version whose response has an error of the group."""


async def offset_fetch(request: OffsetFetchRequest, context: Context) -> OffsetFetchResponse:
    if context.version >= 8:
        groups = await gather_named(
            lambda group: _group(group, request.require_stable, context),
            lambda group: OffsetFetchResponseGroup(
                group_id=group.group_id, error_code=ErrorCode.INVALID_REQUEST
            ),
            request.groups,
            lambda group: group.group_id,
        )
        return OffsetFetchResponse(groups=groups)
    asked = OffsetFetchRequestGroup(group_id=request.group_id, topics=request.topics)
    group = await _group(asked, request.require_stable, context)
    topics = [
        OffsetFetchResponseTopic(name=topic.name, partitions=topic.partitions)
        for topic in group.topics
    ]
    return OffsetFetchResponse(error_code=group.error_code, topics=topics)


async def _group(
    asked: OffsetFetchRequestGroup, stable: bool, context: Context
) -> OffsetFetchResponseGroup:
    if not context.allows(Operation.DESCRIBE, ResourceType.GROUP, asked.group_id):
        return _denied(asked, context.version)
    if asked.member_id is not None or asked.member_epoch >= 0:
        reply = await context.services.groups.run(
            asked.group_id,
            lambda _: context.keys.group(asked.group_id).check_epoch(
                member=asked.member_id or "", epoch=asked.member_epoch
            ),
        )
        if reply.error:
            return OffsetFetchResponseGroup(
                group_id=asked.group_id, error_code=ErrorCode(reply.error)
            )
    # Pending offsets are read first: one that is committed in between is reported as unstable.
    pending = await _pending(asked.group_id, context) if stable else set()
    if pending and await context.services.hanging_transactions.discard_offsets(asked.group_id):
        pending = await _pending(asked.group_id, context)
    if asked.topics is None:
        topics = await _fetch_all(asked.group_id, context)
    else:
        topics = await _fetch(asked.group_id, asked.topics, context)
    if pending:
        topics = [_mark_unstable(topic, pending) for topic in topics]
    return OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics)


def _denied(asked: OffsetFetchRequestGroup, version: int) -> OffsetFetchResponseGroup:
    """Return the response of a group that the client may not describe."""
    error = ErrorCode.GROUP_AUTHORIZATION_FAILED
    if version >= GROUP_ERROR_SINCE:
        return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=error)
    rows = [_unknown(row, error) for row in asked.topics or ()]
    return OffsetFetchResponseGroup(group_id=asked.group_id, topics=rows)


async def _pending(group_id: str, context: Context) -> set[tuple[UUID, int]]:
    """Return the partitions with offsets that wait for the end of a transaction."""
    fields = await context.store.command("HKEYS", context.keys.group(group_id).txn_pending)
    found: set[tuple[UUID, int]] = set()
    for field in fields:
        parsed = parse_field(field.partition(b" ")[2])
        topic = await context.topics.get_readable(parsed[0]) if parsed is not None else None
        if parsed is not None and topic is not None:
            found.add((topic.uuid, parsed[1]))
    return found


def _mark_unstable(
    topic: OffsetFetchResponseTopics, pending: set[tuple[UUID, int]]
) -> OffsetFetchResponseTopics:
    rows = [
        _partition(row.partition_index, NO_OFFSET, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        if (topic.topic_id, row.partition_index) in pending
        else row
        for row in topic.partitions
    ]
    return replace(topic, partitions=rows)


async def _fetch_all(group_id: str, context: Context) -> list[OffsetFetchResponseTopics]:
    flat = await context.store.command("HGETALL", context.keys.group_offsets(group_id))
    by_topic: dict[str, list[tuple[int, CommittedOffset]]] = {}

    def sort(row: tuple[bytes, bytes]) -> None:
        parsed, commit = parse_field(row[0]), parse_commit(row[1])
        if parsed is not None and commit is not None:
            by_topic.setdefault(parsed[0], []).append((parsed[1], commit))

    await map_yielding(sort, list(zip(flat[::2], flat[1::2], strict=True)))
    answers = []
    for name, rows in by_topic.items():
        topic = await context.topics.get_readable(name)
        if topic is not None and context.may_describe(name, audit=False):
            valid = [row for row in rows if _of_topic(row[1], topic) is row[1]]
            valid.sort(key=lambda row: row[0])
            known = await map_yielding(lambda row: _partition(*row), valid)
            if known:
                answers.append(
                    OffsetFetchResponseTopics(name=name, topic_id=topic.uuid, partitions=known)
                )
    return answers


async def _fetch(
    group_id: str, asked: Iterable[OffsetFetchRequestTopics], context: Context
) -> list[OffsetFetchResponseTopics]:
    keys, answers, times = context.keys, [], RepeatLimit()
    for row in asked:
        topic = await (
            context.topics.get_id(row.topic_id)
            if context.version >= 10
            else context.topics.get_readable(row.name)
        )
        name = topic.name if topic is not None else row.name
        if name and not context.may_describe(name):
            answers.append(_unknown(row, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            continue
        if topic is None:
            error = ErrorCode.UNKNOWN_TOPIC_ID if context.version >= 10 else ErrorCode.NONE
            answers.append(_unknown(row, error))
            continue
        partitions: list[OffsetFetchResponsePartitions] = []
        for numbers in chunks(row.partition_indexes, ITEMS_PER_YIELD):
            fields = [topic.partition(number).stream for number in numbers]
            raws = await context.store.command("HMGET", keys.group_offsets(group_id), *fields)
            partitions += [
                _partition(number, NO_OFFSET, ErrorCode.INVALID_REQUEST)
                if times.too_many((topic.id, number))
                else _partition(
                    number, _of_topic(None if raw is None else parse_commit(raw), topic)
                )
                for number, raw in zip(numbers, raws, strict=True)
            ]
        answer = OffsetFetchResponseTopics(
            name=row.name, topic_id=topic.uuid, partitions=partitions
        )
        answers.append(answer)
    return answers


def _of_topic(commit: CommittedOffset | None, topic: Topic) -> CommittedOffset:
    """Return the commit if it was made for this topic."""
    return NO_OFFSET if commit is None or not commit.is_of(topic) else commit


def _partition(
    number: int, commit: CommittedOffset, error: ErrorCode = ErrorCode.NONE
) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=number,
        committed_offset=commit.offset,
        committed_leader_epoch=commit.epoch,
        metadata=commit.metadata,
        error_code=error,
    )


def _unknown(row: OffsetFetchRequestTopics, error: ErrorCode) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=row.name,
        topic_id=row.topic_id,
        partitions=[_partition(number, NO_OFFSET, error) for number in row.partition_indexes],
    )
