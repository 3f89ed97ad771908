"""DescribeConfigs (key 32), versions 0-4. The settings of topics and brokers, and their sources.

Behaviour
- topics: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION; brokers: this one by its id, or the
  defaults of all by an empty name, else INVALID_REQUEST; other kinds of resource: INVALID_REQUEST
- unknown configuration keys are left out, as Kafka does
Versions
- v1 sources and synonyms, v3 types and documentation
"""

from collections.abc import Iterable

from korvet.context import Context
from korvet.errors import ErrorCode
from korvet.settings.values import ConfigValue
from korvet.topic_changes import Refused
from korvet.topics import refusal_of
from korvet.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

TOPIC, BROKER = 2, 4


async def describe_configs(
    request: DescribeConfigsRequest, context: Context
) -> DescribeConfigsResponse:
    results = []
    for resource in request.resources:
        error, reason, found = ErrorCode.NONE, None, []
        try:
            found = [
                _row(value, request)
                for value in await _values(resource, context)
                if resource.configuration_keys is None or value.name in resource.configuration_keys
            ]
        except Refused as refused:
            error, reason = refused.error, refused.reason
        results.append(
            DescribeConfigsResult(
                error_code=error,
                error_message=reason,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=found,
            )
        )
    return DescribeConfigsResponse(results=results)


async def _values(resource: DescribeConfigsResource, context: Context) -> Iterable[ConfigValue]:
    name = resource.resource_name
    if resource.resource_type == TOPIC:
        reason = refusal_of(name, internal=True)
        if reason:
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
        topic = await context.topics.get(name)
        if topic is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist")
        return context.node.topic_configs.resolve(name, topic.configs).values()
    if resource.resource_type == BROKER:
        me = context.node.membership.me.id
        if name not in ("", str(me)):
            raise Refused(
                ErrorCode.INVALID_REQUEST, f"This is broker {me}: ask broker {name} itself."
            )
        return context.settings
    raise Refused(
        ErrorCode.INVALID_REQUEST,
        f"Resource type {resource.resource_type} has no configs here: ask for topics or brokers.",
    )


def _row(value: ConfigValue, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=value.name,
        value=value.value,
        read_only=value.read_only,
        config_source=value.source,
        is_default=value.is_default,
        is_sensitive=False,
        synonyms=[
            DescribeConfigsSynonym(name=row.name, value=row.value, source=row.source)
            for row in value.synonyms
        ]
        if request.include_synonyms
        else [],
        config_type=value.kind,
        documentation=value.documentation if request.include_documentation else None,
    )
