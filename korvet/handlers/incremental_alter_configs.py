"""IncrementalAlterConfigs (key 44), versions 0-1. Change single configs of resources.

Behaviour
- topics, brokers (this one by its id, all with an empty name) and groups; all brokers are notified
- INVALID_REQUEST: a resource or a config named twice, a null value, an unknown operation or
  resource type, a broker setting that is read only at start or cannot have that value
- INVALID_CONFIG: an unknown config, an invalid value, a config fixed at creation, a list operation
  on a config that is no list; UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION
- all changes of a resource are applied, or none; deleting a config that is not set is no error
Versions
- v1 flexible
Left out
- broker loggers: the log level is set at start
- client metrics subscriptions
"""

from collections import Counter

from korvet.admin.alter_configs import Change, Edit
from korvet.admin.results import outcome, refuse
from korvet.context import Context
from korvet.errors import ErrorCode
from korvet.wire.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


async def incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, context: Context
) -> IncrementalAlterConfigsResponse:
    times = Counter((row.resource_type, row.resource_name) for row in request.resources)
    responses = []
    for row in request.resources:
        if times[row.resource_type, row.resource_name] > 1:
            error, reason = await outcome(
                refuse(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            )
        else:
            change = _change(row, request.validate_only)
            error, reason = await outcome(context.services.config_admin.alter(change))
        responses.append(
            AlterConfigsResourceResponse(
                error_code=error,
                error_message=reason,
                resource_type=row.resource_type,
                resource_name=row.resource_name,
            )
        )
    return IncrementalAlterConfigsResponse(responses=responses)


def _change(row: AlterConfigsResource, validate_only: bool) -> Change:
    edits = [Edit(config.name, config.value, config.config_operation) for config in row.configs]
    return Change(row.resource_type, row.resource_name, edits, False, validate_only)
