"""DescribeConfigs (key 32): the settings of topics and brokers, and where each comes from."""

from typing import Annotated

from korvet.wire.schema import Field, Message, Response, i8, i16, request, response


class DescribeConfigsResource(Message):
    resource_type: i8
    """2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group."""
    resource_name: str
    configuration_keys: list[str] | None
    """Null asks for all."""


@request(key=32, versions=(0, 4), flexible=4)
class DescribeConfigsRequest(Message):
    resources: list[DescribeConfigsResource]
    include_synonyms: Annotated[bool, Field(since=1)] = False
    include_documentation: Annotated[bool, Field(since=3)] = False


class DescribeConfigsSynonym(Message):
    name: str
    value: str | None
    source: i8


class DescribeConfigsResourceResult(Message):
    name: str
    value: str | None
    read_only: bool
    config_source: Annotated[i8, Field(since=1)] = -1
    """1 topic, 2 and 3 and 4 broker (dynamic, default of the cluster, static), 5 default."""
    is_default: Annotated[bool, Field(until=0)] = False
    is_sensitive: bool
    synonyms: Annotated[list[DescribeConfigsSynonym], Field(since=1)] = []
    config_type: Annotated[i8, Field(since=3)] = 0
    """1 boolean, 2 string, 3 int, 4 short, 5 long, 6 double, 7 list, 8 class, 9 password."""
    documentation: Annotated[str | None, Field(since=3)] = None


class DescribeConfigsResult(Message):
    error_code: i16 = 0
    error_message: str | None = None
    resource_type: i8
    resource_name: str
    configs: list[DescribeConfigsResourceResult]


@response(DescribeConfigsRequest)
class DescribeConfigsResponse(Response):
    results: list[DescribeConfigsResult]
