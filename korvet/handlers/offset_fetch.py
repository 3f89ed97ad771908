"""OffsetFetch (key 9), versions 0-10. How far groups have read.

Behaviour
- offset -1, empty metadata and no error where nothing is committed, the group or the topic unknown;
  UNKNOWN_TOPIC_ID for an id nobody has
- who names a member of a group of the newer protocol: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH
- null topics: everything the group has committed
- INVALID_REQUEST for a group or a partition that is asked for more than ten times
- require_stable: UNSTABLE_OFFSET_COMMIT where offsets wait for the end of a transaction; those that
  have waited longer than transaction.max.timeout.ms for one that no transactional id has are let go
- a commit made for an earlier topic of the same name does not count
Versions
- v2 null asks for all, v5 leader epochs, v7 require_stable, v8 several groups, v9 member
  epochs, v10 topic ids
"""

from collections.abc import Iterable
from uuid import UUID

from msgspec.structs import replace

from korvet.bounded import RepeatLimit, gather_bounded, map_yielding
from korvet.context import Context
from korvet.errors import ErrorCode
from korvet.groups.consumer_group import keep
from korvet.groups.offset_commit import CommittedOffset, place_of, read_commit
from korvet.topics.table import Topic
from korvet.transactions.hanging import let_go
from korvet.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

NOTHING = CommittedOffset(-1)


async def offset_fetch(request: OffsetFetchRequest, context: Context) -> OffsetFetchResponse:
    if context.version >= 8:
        return OffsetFetchResponse(groups=await _groups(request, context))
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=row.name, partition_indexes=row.partition_indexes)
            for row in request.topics
        ]
    asked = OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)
    group = await _group(asked, request.require_stable, context)
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=row.partition_index,
                        committed_offset=row.committed_offset,
                        committed_leader_epoch=row.committed_leader_epoch,
                        metadata=row.metadata,
                        error_code=row.error_code,
                    )
                    for row in topic.partitions
                ],
            )
            for topic in group.topics
        ]
    )


async def _groups(request: OffsetFetchRequest, context: Context) -> list[OffsetFetchResponseGroup]:
    times = RepeatLimit()

    async def one(asked: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
        if times.too_many(asked.group_id):
            error = ErrorCode.INVALID_REQUEST
            return OffsetFetchResponseGroup(group_id=asked.group_id, topics=[], error_code=error)
        return await _group(asked, request.require_stable, context)

    return await gather_bounded(one, request.groups)


async def _group(
    asked: OffsetFetchRequestGroup, stable: bool, context: Context
) -> OffsetFetchResponseGroup:
    if asked.member_id is not None or asked.member_epoch >= 0:
        error = await _stranger(asked, context)
        if error:
            return OffsetFetchResponseGroup(group_id=asked.group_id, topics=[], error_code=error)
    # What waits is read first: what is committed in between is then merely called unstable.
    waiting = await _waiting(asked.group_id, context) if stable else set()
    if waiting and await let_go(asked.group_id, context):
        waiting = await _waiting(asked.group_id, context)
    if asked.topics is None:
        topics = await _everything(asked.group_id, context)
    else:
        topics = await _some(asked.group_id, asked.topics, context)
    if waiting:
        topics = [_unstable(topic, waiting) for topic in topics]
    return OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics)


async def _stranger(asked: OffsetFetchRequestGroup, context: Context) -> ErrorCode:
    """NONE for a member of the newer protocol at its epoch, and in any other group."""
    return await keep(
        context,
        asked.group_id,
        (),
        member=asked.member_id or "",
        epoch=asked.member_epoch,
        otherwise=ErrorCode.NONE,
        stores=False,
    )


async def _waiting(group_id: str, context: Context) -> set[tuple[UUID, int]]:
    """The partitions with offsets that wait for the end of a transaction."""
    fields = await context.store.command("HKEYS", context.keys.group(group_id).txn_offsets)
    found: set[tuple[UUID, int]] = set()
    for field in fields:
        place = place_of(field.partition(b" ")[2])
        topic = await context.topics.get(place[0]) if place is not None else None
        if place is not None and topic is not None:
            found.add((topic.uuid, place[1]))
    return found


def _unstable(
    topic: OffsetFetchResponseTopics, waiting: set[tuple[UUID, int]]
) -> OffsetFetchResponseTopics:
    rows = [
        _partition(row.partition_index, NOTHING, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        if (topic.topic_id, row.partition_index) in waiting
        else row
        for row in topic.partitions
    ]
    return replace(topic, partitions=rows)


async def _everything(group_id: str, context: Context) -> list[OffsetFetchResponseTopics]:
    flat = await context.store.command("HGETALL", context.keys.group_offsets(group_id))
    by_topic: dict[str, list[tuple[int, CommittedOffset]]] = {}

    def sort(row: tuple[bytes, bytes]) -> None:
        place, commit = place_of(row[0]), read_commit(row[1])
        if place is not None and commit is not None:
            by_topic.setdefault(place[0], []).append((place[1], commit))

    await map_yielding(sort, list(zip(flat[::2], flat[1::2], strict=True)))
    answers = []
    for name, rows in by_topic.items():
        topic = await context.topics.get(name)
        if topic is not None:
            counted = [row for row in rows if _counted(row[1], topic) is row[1]]
            counted.sort(key=lambda row: row[0])
            known = await map_yielding(lambda row: _partition(*row), counted)
            if known:
                answers.append(
                    OffsetFetchResponseTopics(name=name, topic_id=topic.uuid, partitions=known)
                )
    return answers


async def _some(
    group_id: str, asked: Iterable[OffsetFetchRequestTopics], context: Context
) -> list[OffsetFetchResponseTopics]:
    keys, answers, times = context.keys, [], RepeatLimit()
    for row in asked:
        topic = await (
            context.topics.get_id(row.topic_id)
            if context.version >= 10
            else context.topics.get(row.name)
        )
        if topic is None:
            error = ErrorCode.UNKNOWN_TOPIC_ID if context.version >= 10 else ErrorCode.NONE
            answers.append(_unknown(row, error))
            continue
        numbers = dict.fromkeys(row.partition_indexes)
        fields = [keys.partition(topic.name, number).stream for number in numbers]
        raws = (
            await context.store.command("HMGET", keys.group_offsets(group_id), *fields)
            if fields
            else []
        )
        commits = {
            number: None if raw is None else read_commit(raw)
            for number, raw in zip(numbers, raws, strict=True)
        }
        partitions = [
            _partition(number, NOTHING, ErrorCode.INVALID_REQUEST)
            if times.too_many((topic.id, number))
            else _partition(number, _counted(commits[number], topic))
            for number in row.partition_indexes
        ]
        answer = OffsetFetchResponseTopics(
            name=row.name, topic_id=topic.uuid, partitions=partitions
        )
        answers.append(answer)
    return answers


def _counted(commit: CommittedOffset | None, topic: Topic) -> CommittedOffset:
    """The commit, if it was made for this topic."""
    if commit is None or commit.topic_id not in ("", topic.id):
        return NOTHING
    return commit


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
        partitions=[_partition(number, NOTHING, error) for number in row.partition_indexes],
    )
