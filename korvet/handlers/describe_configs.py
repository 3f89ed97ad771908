"""DescribeConfigs (key 32), versions 0-4. Configs of topics, brokers and groups.

Behaviour
- topics: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION; brokers: this one by its id, or by an
  empty name what was changed for all of them, else INVALID_REQUEST; groups: any name but an empty
  one; broker loggers: one, `korvet`, with its level; client metrics: no subscription has any
- INVALID_REQUEST for all that is asked, when there is another kind of resource among it, or one is
  named more than ten times: an answer is a thousand times as large as such a request
- unknown configuration keys are left out, and no keys at all ask for everything, as in Kafka
- configs come in the order of their names, however they were asked for
Versions
- v1 sources and synonyms, v3 types and documentation
Left out
- client metrics subscriptions: there are none
"""

import asyncio
from collections.abc import Iterable
from operator import attrgetter

from korvet.admin.alter_configs import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    LOGGER_RESOURCE,
    TOPIC_RESOURCE,
    require_own_id,
    strip_leading_zeros,
)
from korvet.bounded import TOO_OFTEN, RepeatLimit
from korvet.config.broker_settings import BROKER
from korvet.config.dynamic import ALL_BROKERS
from korvet.config.setting import Setting, Source, Text, Type, Whole, Words
from korvet.config.values import ConfigValue, Synonym
from korvet.context import Context
from korvet.errors import ErrorCode
from korvet.topics.lifecycle import Refused
from korvet.topics.table import check_topic_name
from korvet.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

_NAME = attrgetter("name")

KINDS = frozenset(
    {TOPIC_RESOURCE, BROKER_RESOURCE, LOGGER_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE}
)
BROKERS = frozenset({BROKER_RESOURCE, LOGGER_RESOURCE})
"""A resource of these kinds has a broker's id for a name: 7, 07, 007."""


async def describe_configs(
    request: DescribeConfigsRequest, context: Context
) -> DescribeConfigsResponse:
    reason = _too_much(request.resources)
    if reason:
        return _refuse_all(request, reason)
    results: list[DescribeConfigsResult] = []
    rows = _Rows(request)
    for resource in request.resources:
        if results:
            await asyncio.sleep(0)  # there may be thousands: others first
        error, reason, found = ErrorCode.NONE, None, []
        keys = frozenset(resource.configuration_keys or ())
        try:
            found = [
                rows.of(resource.resource_type, value)
                for value in await _values(resource, context)
                if not keys or value.name in keys
            ]
            # Kafka's order is that of a hash, but always the same, and clients take a config by
            # its place: cleanup.policy before retention.ms, defaults before num.partitions.
            found.sort(key=_NAME)
        except Refused as refused:
            error, reason = refused.error, refused.reason
        results.append(
            DescribeConfigsResult(
                error_code=error,
                error_message=reason or "",
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=found,
            )
        )
    return DescribeConfigsResponse(results=results)


def _too_much(resources: Iterable[DescribeConfigsResource]) -> str | None:
    """Why nothing of this is answered."""
    times = RepeatLimit()
    for row in resources:
        if row.resource_type not in KINDS:
            return (
                f"Resource type {row.resource_type} has no configs: ask for topics, brokers, "
                "broker loggers, client metrics or groups."
            )
        name = row.resource_name
        if row.resource_type in BROKERS:
            name = strip_leading_zeros(name)
        if times.too_many((row.resource_type, name)):
            return f"{row.resource_name}: {TOO_OFTEN}"
    return None


def _refuse_all(request: DescribeConfigsRequest, reason: str) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(
                error_code=ErrorCode.INVALID_REQUEST,
                error_message=reason,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=[],
            )
            for resource in request.resources
        ]
    )


class _Rows:
    """The rows of one answer. Most topics have most of theirs in common, and share them."""

    def __init__(self, request: DescribeConfigsRequest) -> None:
        self._request = request
        self._known: dict[tuple[object, ...], DescribeConfigsResourceResult] = {}

    def of(self, kind: int, value: ConfigValue) -> DescribeConfigsResourceResult:
        """The row that tells this value of a resource of that kind."""
        place = (kind, value.name, value.value, value.source, value.synonyms)
        row = self._known.get(place)
        if row is None:
            row = self._known[place] = _row(value, self._request)
        return row


async def _values(resource: DescribeConfigsResource, context: Context) -> Iterable[ConfigValue]:
    name = resource.resource_name
    if resource.resource_type == TOPIC_RESOURCE:
        reason = check_topic_name(name, reserved=True)
        if reason:
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
        topic = await context.topics.get(name)
        if topic is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist")
        return context.services.topic_configs.resolve(name, topic.configs).values()
    if resource.resource_type == BROKER_RESOURCE:
        await context.services.dynamic_config.refresh()
        if not name:
            explicit = context.services.configs.explicit(ALL_BROKERS)
            return [context.settings.describe(name) for name in explicit if name in BROKER]
        require_own_id(name, context.services.registration.me.id)
        return [*_of_this_start(context), *context.settings]
    if resource.resource_type == GROUP_RESOURCE:
        if not name:
            raise Refused(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        await context.services.dynamic_config.refresh()
        return context.services.configs.group(name, context.settings).values()
    if resource.resource_type == LOGGER_RESOURCE:
        require_own_id(name, context.services.registration.me.id)
        return [_level(context)]
    if not name:
        raise Refused(
            ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty"
        )
    return []


def _of_this_start(context: Context) -> list[ConfigValue]:
    """What is an option here and a config in Kafka: who this broker is, and where it is found."""
    me = context.services.registration.me
    return [
        _chosen(
            "advertised.listeners",
            f"PLAINTEXT://{me.host}:{me.port}",
            "Where clients connect.",
            Words(),
        ),
        _chosen("broker.id", str(me.id), "This broker's id.", Whole(0)),
        _chosen("node.id", str(me.id), "This broker's id.", Whole(0)),
    ]


def _level(context: Context) -> ConfigValue:
    """The one logger, whose level is chosen at start."""
    return _chosen("korvet", context.config.log_level.upper(), "Level of all log lines.", Text())


def _chosen(name: str, value: str, sentence: str, type_: Type) -> ConfigValue:
    """What an option chose at start, and nothing changes while the broker runs."""
    return ConfigValue(
        Setting(name, type_, None, sentence, dynamic=False),
        value,
        Source.STATIC_BROKER,
        (Synonym(name, value, Source.STATIC_BROKER),),
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
