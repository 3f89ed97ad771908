"""ListConfigResources. Return the names of resources that have configs.

Behaviour
- topics, brokers (also as loggers), and groups with explicit configs
- UNSUPPORTED_VERSION for an unknown resource type
Versions
- v0 client metrics subscriptions only (there are none), v1 by resource type
"""

from korvet.admin.config_edits import ConfigResourceType
from korvet.base.errors import ErrorCode
from korvet.context import Context
from korvet.scripts.call import decode_group
from korvet.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)


async def list_config_resources(
    request: ListConfigResourcesRequest, context: Context
) -> ListConfigResourcesResponse:
    wanted = set(request.resource_types or ConfigResourceType)
    if context.version == 0:
        wanted = {ConfigResourceType.CLIENT_METRICS}
    if not wanted <= set(ConfigResourceType):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    found = [
        ConfigResource(resource_name=name, resource_type=kind)
        for kind in ConfigResourceType
        if kind in wanted
        for name in await _names(kind, context)
    ]
    return ListConfigResourcesResponse(config_resources=found)


async def _names(kind: int, context: Context) -> list[str]:
    if kind == ConfigResourceType.TOPIC:
        return [topic.name for topic in await context.topics.all()]
    if kind in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER):
        return [str(broker.id) for broker in context.services.registration.brokers]
    if kind == ConfigResourceType.GROUP:
        await context.services.dynamic_config.refresh()
        return [decode_group(group) for group in context.services.configs.groups()]
    return []
