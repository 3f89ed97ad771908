"""ListConfigResources (key 74): the names of resources with configs.

Version 0 was ListClientMetricsResources and lists those only; 1 names resource types.
"""

from typing import Annotated

from korvet.wire.schema import Field, Message, Response, i8, i16, request, response


@request(key=74, versions=(0, 1), flexible=0)
class ListConfigResourcesRequest(Message):
    resource_types: Annotated[list[i8], Field(since=1)] = []
    """Empty asks for all."""


class ConfigResource(Message):
    resource_name: str
    resource_type: Annotated[i8, Field(since=1)] = 16


@response(ListConfigResourcesRequest)
class ListConfigResourcesResponse(Response):
    error_code: i16 = 0
    config_resources: list[ConfigResource] = []
