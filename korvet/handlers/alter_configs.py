"""AlterConfigs (key 33), versions 0-2. Replace all configs of a resource.

Behaviour
- configs that the request does not name get their default, except those fixed at topic creation
- errors as for IncrementalAlterConfigs
Versions
- v1 as v0, v2 flexible
Left out
- Apache Kafka 4 keeps this API only for old tools, and so does Korvet
"""

from collections import Counter

from korvet.admin.alter_configs import Change, Edit
from korvet.admin.results import outcome, refuse
from korvet.context import Context
from korvet.errors import ErrorCode
from korvet.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


async def alter_configs(request: AlterConfigsRequest, context: Context) -> AlterConfigsResponse:
    times = Counter((row.resource_type, row.resource_name) for row in request.resources)
    responses = []
    for row in request.resources:
        if times[row.resource_type, row.resource_name] > 1:
            error, reason = await outcome(
                refuse(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            )
        else:
            error, reason = await outcome(
                context.services.config_admin.alter(_change(row, request.validate_only))
            )
        responses.append(
            AlterConfigsResourceResponse(
                error_code=error,
                error_message=reason,
                resource_type=row.resource_type,
                resource_name=row.resource_name,
            )
        )
    return AlterConfigsResponse(responses=responses)


def _change(row: AlterConfigsResource, validate_only: bool) -> Change:
    edits = [Edit(config.name, config.value) for config in row.configs]
    return Change(row.resource_type, row.resource_name, edits, True, validate_only)
