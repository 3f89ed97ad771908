"""AlterConfigs (key 33): replace all configs of a resource; others get their default."""

from korvet.wire.schema import Message, Response, i8, i16, request, response


class AlterableConfig(Message):
    name: str
    value: str | None


class AlterConfigsResource(Message):
    resource_type: i8
    resource_name: str
    configs: list[AlterableConfig]


@request(key=33, versions=(0, 2), flexible=2)
class AlterConfigsRequest(Message):
    resources: list[AlterConfigsResource]
    validate_only: bool


class AlterConfigsResourceResponse(Message):
    error_code: i16 = 0
    error_message: str | None = None
    resource_type: i8
    resource_name: str


@response(AlterConfigsRequest)
class AlterConfigsResponse(Response):
    responses: list[AlterConfigsResourceResponse]
