"""IncrementalAlterConfigs (key 44): set, unset, append to or subtract from single settings."""

from korvet.wire.messages.alter_configs import AlterConfigsResourceResponse
from korvet.wire.schema import Message, Response, i8, request, response


class AlterableConfig(Message):
    name: str
    config_operation: i8
    """0 set, 1 delete, 2 append, 3 subtract."""
    value: str | None


class AlterConfigsResource(Message):
    resource_type: i8
    resource_name: str
    configs: list[AlterableConfig]


@request(key=44, versions=(0, 1), flexible=1)
class IncrementalAlterConfigsRequest(Message):
    resources: list[AlterConfigsResource]
    validate_only: bool


@response(IncrementalAlterConfigsRequest)
class IncrementalAlterConfigsResponse(Response):
    responses: list[AlterConfigsResourceResponse]
