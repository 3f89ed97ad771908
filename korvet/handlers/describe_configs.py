"""DescribeConfigs. Return configs of topics, brokers and groups.

Behaviour
- topics: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION; brokers: this one by its id, or with
  an empty name the dynamic configs of all brokers, else INVALID_REQUEST; groups: any name but an
  empty one; broker loggers: one, `korvet`, with its level; client metrics: none
- INVALID_REQUEST for all resources if one has an unsupported type or is listed more than ten times:
  a response is a thousand times as large as such a request
- unknown configuration keys are left out; a request without keys gets all configs, as in Kafka
- configs are sorted by name
Versions
- v1 sources and synonyms, v3 types and documentation
Left out
- client metrics subscriptions: there are none
"""

import asyncio
from collections.abc import Iterable
from operator import attrgetter

from korvet.admin.alter_configs import require_own_id, strip_leading_zeros
from korvet.admin.config_edits import ConfigResourceType
from korvet.base.bounded import TOO_OFTEN, RepeatLimit
from korvet.base.errors import ErrorCode
from korvet.cluster.registration import LiveBroker
from korvet.config.broker_settings import BROKER
from korvet.config.dynamic import ALL_BROKERS
from korvet.config.setting import Setting, Source, Text, Type, Whole, Words
from korvet.config.values import ConfigValue, Synonym
from korvet.context import Context
from korvet.topics.lifecycle import Refused, check_topic_name, invalid_request, unknown_topic
from korvet.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

_NAME = attrgetter("name")

KINDS = frozenset(ConfigResourceType)
BROKERS = frozenset({ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER})
"""Resource types whose name is a broker id: 7, 07 and 007 are the same broker."""


async def describe_configs(
    request: DescribeConfigsRequest, context: Context
) -> DescribeConfigsResponse:
    too_much = _too_much(request.resources)
    results: list[DescribeConfigsResult] = []
    rows = _Rows(request)
    for resource in request.resources:
        if results:  # a request may have thousands of resources: yield to the event loop
            await asyncio.sleep(0)
        error, reason, found = ErrorCode.NONE, None, []
        keys = frozenset(resource.configuration_keys or ())
        try:
            if too_much:
                raise invalid_request(too_much)
            found = [
                rows.of(resource.resource_type, value)
                for value in await _values(resource, context)
                if not keys or value.name in keys
            ]
            # Kafka's order comes from a hash map but never changes, and clients take configs by
            # position: cleanup.policy before retention.ms, defaults before num.partitions.
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
    """Return why the whole request is rejected, None if it is not."""
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


class _Rows:
    """Rows of one response. Rows that are equal in several topics are built once and shared."""

    def __init__(self, request: DescribeConfigsRequest) -> None:
        self._request = request
        self._known: dict[tuple[object, ...], DescribeConfigsResourceResult] = {}

    def of(self, kind: int, value: ConfigValue) -> DescribeConfigsResourceResult:
        """Return the row for this value of a resource of that type."""
        row_key = (kind, value.name, value.value, value.source, value.synonyms)
        row = self._known.get(row_key)
        if row is None:
            row = self._known[row_key] = _row(value, self._request)
        return row


async def _values(resource: DescribeConfigsResource, context: Context) -> Iterable[ConfigValue]:
    name = resource.resource_name
    if resource.resource_type == ConfigResourceType.TOPIC:
        reason = check_topic_name(name, reserved=True)
        if reason:
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
        topic = await context.topics.get_readable(name)
        if topic is None:
            raise unknown_topic(name)
        return context.services.topic_configs.resolve(name, topic.configs).values()
    if resource.resource_type == ConfigResourceType.BROKER:
        await context.services.dynamic_config.refresh()
        if not name:
            explicit = context.services.configs.explicit(ALL_BROKERS)
            return [_of_all_brokers(name, explicit[name]) for name in explicit if name in BROKER]
        require_own_id(name, context.services.registration.me.id)
        return [*_of_this_start(context.services.registration.me), *context.settings]
    if resource.resource_type == ConfigResourceType.GROUP:
        if not name:
            raise invalid_request("Group name must not be empty")
        await context.services.dynamic_config.refresh()
        return context.services.configs.group(name, context.settings).values()
    if resource.resource_type == ConfigResourceType.BROKER_LOGGER:
        require_own_id(name, context.services.registration.me.id)
        level = context.config.log_level.upper()
        return [_chosen("korvet", level, "Level of all log lines.", Text())]
    if not name:
        raise invalid_request("Client metrics subscription name must not be empty")
    return []


def _of_all_brokers(name: str, value: str) -> ConfigValue:
    """Return a value that is set for all brokers, also if this one has another."""
    changed = Synonym(name, value, Source.DYNAMIC_DEFAULT_BROKER)
    return ConfigValue(BROKER[name], value, changed.source, (changed,))


def _of_this_start(me: LiveBroker) -> list[ConfigValue]:
    """Return the command-line options that are configs in Kafka: this broker's id and address."""
    return [
        _chosen(
            "advertised.listeners", me.addresses, "Addresses that clients connect to.", Words()
        ),
        _chosen("broker.id", str(me.id), "This broker's id.", Whole(0)),
        _chosen("node.id", str(me.id), "This broker's id.", Whole(0)),
    ]


def _chosen(name: str, value: str, sentence: str, type_: Type) -> ConfigValue:
    """Return the value of an option that is set at start and does not change."""
    return ConfigValue(
        Setting(name, type_, None, sentence, dynamic=False),
        value,
        Source.STATIC_BROKER,
        (Synonym(name, value, Source.STATIC_BROKER),),
    )


def _row(value: ConfigValue, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=value.name,
        value=None if value.setting.sensitive else value.value,
        read_only=value.read_only,
        config_source=value.source,
        is_default=value.is_default,
        is_sensitive=value.setting.sensitive,
        synonyms=[
            DescribeConfigsSynonym(
                name=row.name,
                value=None if value.setting.sensitive else row.value,
                source=row.source,
            )
            for row in value.synonyms
        ]
        if request.include_synonyms
        else [],
        config_type=value.setting.kind,
        documentation=value.setting.documentation if request.include_documentation else None,
    )
