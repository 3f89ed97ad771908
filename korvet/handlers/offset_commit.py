"""OffsetCommit (key 8), versions 0-10. Remember how far a group has read.

Behaviour
- per partition: UNKNOWN_TOPIC_OR_PARTITION (UNKNOWN_TOPIC_ID from 10 on)
- for the rest together, in the script that stores them: ILLEGAL_GENERATION (GROUP_ID_NOT_FOUND from
  9 on) for a generation of a group that does not exist, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID,
  ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS between JoinGroup and SyncGroup
- per partition of a commit that would stand: OFFSET_METADATA_TOO_LARGE
- members of the newer protocol: UNKNOWN_MEMBER_ID, UNSUPPORTED_VERSION before 9, STALE_MEMBER_EPOCH
- without membership (generation -1) a group without members takes commits; a group id may be empty
- the Redis group of that name moves along, so that XREADGROUP goes on at the committed offset
- a commit also says that the member is alive
Versions
- v1 member and generation, v2-4 retention, v6 leader epochs, v7 group.instance.id, v10 topic ids
Left out
- the commit timestamps of version 1: the time is Redis's
"""

from korvet.context import Context
from korvet.errors import ErrorCode
from korvet.groups.commit_validation import plan, told
from korvet.groups.consumer_group import MAYBE_NEWER, keep
from korvet.groups.offset_commit import Row
from korvet.groups.stream_reads import reads_streams
from korvet.scripts import group as scripts
from korvet.scripts.call import Call
from korvet.scripts.group import MemberReply
from korvet.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

NEWER_SINCE = 9
"""The first version that members of the newer protocol may use."""
BY_ID = 10
"""From this version on topics are named by their ids."""
STALE = ErrorCode.STALE_MEMBER_EPOCH


async def offset_commit(request: OffsetCommitRequest, context: Context) -> OffsetCommitResponse:
    planned = await plan(request.topics, context, by_id=context.version >= BY_ID)
    verdict = ErrorCode.NONE
    if planned.asks:
        verdict = await _commit(request, planned.rows, context)
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=asked.name,
                topic_id=asked.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=part.partition_index, error_code=told(fate, verdict)
                    )
                    for part, fate in zip(asked.partitions, fates, strict=True)
                ],
            )
            for asked, fates in zip(request.topics, planned.fates, strict=True)
        ]
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
            is_registered=registered,
            retention_ms=request.retention_time_ms,
        )

    reply = await context.services.groups.run(request.group_id, make)
    error = ErrorCode(reply.error)
    if error in MAYBE_NEWER:
        error = await keep(
            context,
            request.group_id,
            rows,
            member=request.member_id,
            epoch=request.generation_id_or_member_epoch,
            otherwise=error,
            stores=context.version >= NEWER_SINCE,
        )
        if context.version < NEWER_SINCE and error in (ErrorCode.NONE, STALE):
            return ErrorCode.UNSUPPORTED_VERSION
    if not error:
        move = not reads_streams(context, request.group_id)
        await context.services.groups.follow(request.group_id, rows, move=move)
    if error is ErrorCode.GROUP_ID_NOT_FOUND and context.version < NEWER_SINCE:
        return ErrorCode.ILLEGAL_GENERATION
    return error
