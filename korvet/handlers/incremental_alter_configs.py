"""IncrementalAlterConfigs. Change single configs of resources.

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

from korvet.context import Context
from korvet.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


async def incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, context: Context
) -> IncrementalAlterConfigsResponse:
    responses = await context.services.config_admin.alter_each(request)
    return IncrementalAlterConfigsResponse(responses=responses)
