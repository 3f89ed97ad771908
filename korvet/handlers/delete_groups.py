"""DeleteGroups. Delete groups without members, and their offsets.

Behaviour
- GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP; a group that is listed twice has one result
- of a share group the state in all partitions is deleted
- the Redis groups of that name are destroyed on every stream with a committed offset
Versions
- v2 flexible, v3 error messages
"""

from korvet.base.bounded import gather_bounded
from korvet.context import Context
from korvet.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


async def delete_groups(request: DeleteGroupsRequest, context: Context) -> DeleteGroupsResponse:
    names = list(dict.fromkeys(request.groups_names))
    errors = await gather_bounded(context.services.share_offsets.delete_group, names)
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(
                group_id=name, error_code=error, error_message=error.message if error else None
            )
            for name, error in zip(names, errors, strict=True)
        ]
    )
