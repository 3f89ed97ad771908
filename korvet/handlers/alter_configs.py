"""AlterConfigs. Replace all configs of a resource.

Behaviour
- configs that the request does not name get their default, except those fixed at topic creation
- errors as for IncrementalAlterConfigs
Versions
- v1 as v0, v2 flexible
Left out
- Apache Kafka 4 keeps this API only for old tools, and so does Korvet
"""

from korvet.admin.config_edits import Change, Edit
from korvet.context import Context
from korvet.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


async def alter_configs(request: AlterConfigsRequest, context: Context) -> AlterConfigsResponse:
    changes = [
        Change(
            row.resource_type,
            row.resource_name,
            [Edit(config.name, config.value) for config in row.configs],
            True,
            request.validate_only,
        )
        for row in request.resources
    ]
    admin = context.services.config_admin
    return AlterConfigsResponse(
        responses=await admin.alter_each(changes, AlterConfigsResourceResponse)
    )
