"""AlterConfigs. Replace all configs of a resource.

Behaviour
- configs that the request does not name get their default, except those fixed at topic creation
- errors as for IncrementalAlterConfigs
Versions
- v1 as v0, v2 flexible
Left out
- Apache Kafka 4 keeps this API only for old tools, and so does Korvet
"""

from korvet.context import Context
from korvet.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
)


async def alter_configs(request: AlterConfigsRequest, context: Context) -> AlterConfigsResponse:
    responses = await context.services.config_admin.alter_each(request)
    return AlterConfigsResponse(responses=responses)
