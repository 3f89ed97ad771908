"""OffsetCommit (key 8), versions 0-10. Remember how far a group has read.

Behaviour
- per partition: UNKNOWN_TOPIC_OR_PARTITION (UNKNOWN_TOPIC_ID from 10 on), OFFSET_METADATA_TOO_LARGE
- for the rest together, in the script that stores them: ILLEGAL_GENERATION (GROUP_ID_NOT_FOUND from
  9 on) for a generation of a group that does not exist, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID,
  ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS between JoinGroup and SyncGroup
- without membership (generation -1) a group without members takes commits; a group id may be empty
- the Redis group of that name moves along, so that XREADGROUP goes on at the committed offset
- a commit also says that the member is alive
Versions
- v1 member and generation, v2-4 retention, v6 leader epochs, v7 group.instance.id, v10 topic ids
Left out
- the commit timestamps of version 1: the time is Redis's
"""

from korvet.consuming import MAYBE_NEWER, keep
from korvet.context import Context
from korvet.coordinating import groups
from korvet.errors import ErrorCode
from korvet.groups import Row
from korvet.scripts import group as scripts
from korvet.scripts.call import Call
from korvet.scripts.group import MemberReply
from korvet.streaming import reads_streams
from korvet.topics import Topic
from korvet.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)


async def offset_commit(request: OffsetCommitRequest, context: Context) -> OffsetCommitResponse:
    longest = context.settings.integer("offset.metadata.max.bytes")
    rows: list[Row] = []
    answers: list[list[ErrorCode | None]] = []
    for asked in request.topics:
        topic = await _topic(asked, context)
        answers.append([])
        for part in asked.partitions:
            refused = _refused(part, topic, longest, context.version)
            answers[-1].append(refused)
            if topic is not None and refused is None:
                rows.append(_row(part, topic))
    error = await _commit(request, rows, context) if rows else ErrorCode.NONE
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=asked.name,
                topic_id=asked.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=part.partition_index,
                        error_code=error if refused is None else refused,
                    )
                    for part, refused in zip(asked.partitions, refusals, strict=True)
                ],
            )
            for asked, refusals in zip(request.topics, answers, strict=True)
        ]
    )


async def _topic(asked: OffsetCommitRequestTopic, context: Context) -> Topic | None:
    if context.version >= 10:
        return await context.topics.get_id(asked.topic_id)
    return await context.topics.get(asked.name)


def _refused(
    part: OffsetCommitRequestPartition, topic: Topic | None, longest: int, version: int
) -> ErrorCode | None:
    if topic is None and version >= 10:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if topic is None or not 0 <= part.partition_index < topic.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if len((part.committed_metadata or "").encode("utf-8", "surrogateescape")) > longest:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return None


def _row(part: OffsetCommitRequestPartition, topic: Topic) -> Row:
    return (
        topic.name,
        part.partition_index,
        part.committed_offset,
        part.committed_leader_epoch,
        topic.id,
        part.committed_metadata or "",
    )


async def _commit(request: OffsetCommitRequest, rows: list[Row], context: Context) -> ErrorCode:
    def make(registered: int) -> Call[MemberReply]:
        return scripts.commit(
            context.keys,
            request.group_id,
            rows,
            member=request.member_id,
            instance=request.group_instance_id or "",
            generation=request.generation_id_or_member_epoch,
            registered=registered,
            retention_ms=request.retention_time_ms,
        )

    reply = await groups(context).run(request.group_id, make)
    error = ErrorCode(reply.error)
    if error in MAYBE_NEWER:
        error = await keep(
            context,
            request.group_id,
            rows,
            member=request.member_id,
            epoch=request.generation_id_or_member_epoch,
            otherwise=error,
        )
    if not error:
        move = not reads_streams(context, request.group_id)
        await groups(context).follow(request.group_id, rows, move=move)
    if error is ErrorCode.GROUP_ID_NOT_FOUND and context.version < 9:
        return ErrorCode.ILLEGAL_GENERATION
    return error
