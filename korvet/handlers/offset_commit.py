"""OffsetCommit. Commit a group's offsets.

Behaviour
- per partition: UNKNOWN_TOPIC_OR_PARTITION (UNKNOWN_TOPIC_ID from 10 on)
- for all other partitions together, in the script that commits: ILLEGAL_GENERATION
  (GROUP_ID_NOT_FOUND from 9 on) for a generation of a group that does not exist, UNKNOWN_MEMBER_ID,
  FENCED_INSTANCE_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS between JoinGroup and SyncGroup
- GROUP_ID_NOT_FOUND for a share group: it has no committed offsets
- per partition that the group accepts: OFFSET_METADATA_TOO_LARGE
- members of a consumer group (KIP-848): UNKNOWN_MEMBER_ID, UNSUPPORTED_VERSION before 9,
  STALE_MEMBER_EPOCH; their group instance id is not compared
- without membership (generation -1) a group without members accepts commits; a group id may be
  empty
- the Redis group of that name moves to the committed offset, so that XREADGROUP continues there
- a commit renews the session of a classic member
- 500 partitions at a time are committed together: if a rebalance begins between two, all partitions
  have its error though the first are committed
Versions
- v1 member and generation, v2-4 retention, v6 leader epochs, v7 group.instance.id, v10 topic ids
Left out
- the commit timestamps of version 1: the time is Redis's
"""

from collections.abc import Sequence

from korvet.base.errors import ErrorCode
from korvet.context import Context
from korvet.groups.offset_commit import Row, commit_results, validate_commit
from korvet.scripts.call import Call
from korvet.scripts.calls.group import CommitReply
from korvet.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponseTopic,
)

MEMBER_EPOCH_SINCE = 9
"""The first version that members of a consumer group may use."""
BY_ID_SINCE = 10
"""The first version with topic ids."""


async def offset_commit(request: OffsetCommitRequest, context: Context) -> OffsetCommitResponse:
    commit = await validate_commit(
        request.topics,
        context.topics,
        max_metadata=context.settings.integer("offset.metadata.max.bytes"),
        by_id=context.version >= BY_ID_SINCE,
    )
    group_error = ErrorCode.NONE
    if commit.needs_group:
        group_error = await _commit(request, commit.rows, context)
    topics = commit_results(request.topics, commit, group_error, OffsetCommitResponseTopic)
    return OffsetCommitResponse(topics=topics)


async def _commit(request: OffsetCommitRequest, rows: list[Row], context: Context) -> ErrorCode:
    has_member_epochs = context.version >= MEMBER_EPOCH_SINCE

    def make(some: Sequence[Row], is_registered: int) -> Call[CommitReply]:
        return context.keys.group(request.group_id).commit(
            context.keys.commit_rows(some),
            member=request.member_id,
            instance=request.group_instance_id or "",
            generation=request.generation_id_or_member_epoch,
            allow_member_epoch=int(has_member_epochs),
            is_registered=is_registered,
            retention_ms=request.retention_time_ms,
        )

    replies = await context.services.groups.run_rows(request.group_id, rows, make)
    error = ErrorCode(replies[-1].error)
    if not error:
        move = not context.services.stream_reads.is_stream_group(request.group_id)
        await context.services.groups.redis_groups.seek(request.group_id, rows, move=move)
    # Without a generation the group is a share group, which has no committed offsets.
    has_generation = request.generation_id_or_member_epoch >= 0
    if error is ErrorCode.GROUP_ID_NOT_FOUND and has_generation and not has_member_epochs:
        return ErrorCode.ILLEGAL_GENERATION
    return error
