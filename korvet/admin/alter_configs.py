"""Changing the configs of topics, brokers and groups while they run.

Rules
- A change is worked out from what was read, and written only if that is still what Redis has;
  otherwise it is read and worked out again. So two changes at once both count.
- Only what is being changed is checked: a config another version stored stays as it is.
"""

from collections.abc import Mapping, Sequence

import msgspec

from korvet.config.broker_settings import BROKER
from korvet.config.dynamic import (
    ALL_BROKERS,
    broker_resource,
    encode_configs,
    group_resource,
    valid,
)
from korvet.config.group_settings import FROM_BROKER, GROUP
from korvet.config.setting import ConfigError, Kind, Setting, known
from korvet.config.topic_policy import validate_all, validate_change
from korvet.config.topic_settings import IMMUTABLE, TOPIC
from korvet.config.values import ConfigValue, Settings
from korvet.context import Context
from korvet.errors import ErrorCode
from korvet.scripts import config as config_scripts
from korvet.scripts import topic as topic_scripts
from korvet.topics.lifecycle import Refused
from korvet.topics.table import encode_definition, refusal_of

ATTEMPTS = 20
"""So often somebody else's change may come first; more than that is no coincidence."""
SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC_RESOURCE, BROKER_RESOURCE, LOGGER_RESOURCE, CLIENT_METRICS_RESOURCE = 2, 4, 8, 16
GROUP_RESOURCE = 32
SETTINGS = {TOPIC_RESOURCE: TOPIC, BROKER_RESOURCE: BROKER, GROUP_RESOURCE: GROUP}


class Edit(msgspec.Struct, frozen=True):
    """One change of one config; the numbers of `operation` are IncrementalAlterConfigs'."""

    name: str
    value: str | None
    operation: int = SET


class Change(msgspec.Struct, frozen=True):
    """What is asked for one resource. `replace`: what is not named falls back to its default."""

    kind: int
    name: str
    edits: Sequence[Edit]
    replace: bool
    validate_only: bool


async def alter(change: Change, context: Context) -> None:
    """The resource's configs are changed, or would be if that was all that is asked. Or Refused."""
    _check_edits(change.edits, SETTINGS.get(change.kind))
    if change.kind == TOPIC_RESOURCE:
        await _alter_topic(change, context)
    elif change.kind == BROKER_RESOURCE:
        await _alter_broker(change, context)
    elif change.kind == GROUP_RESOURCE:
        await _alter_group(change, context)
    elif change.kind == LOGGER_RESOURCE:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            "Log levels are chosen when a broker starts, with --log-level.",
        )
    elif change.kind == CLIENT_METRICS_RESOURCE:
        raise Refused(
            ErrorCode.INVALID_REQUEST, "No metrics are taken from clients: there is nothing to set."
        )
    else:
        raise Refused(ErrorCode.INVALID_REQUEST, f"Unknown resource type {change.kind}")


def _check_edits(edits: Sequence[Edit], settings: Mapping[str, Setting] | None) -> None:
    """What can be said before anybody asks whether there is such a resource."""
    seen: set[str] = set()
    for edit in edits:
        if edit.name in seen:
            raise Refused(ErrorCode.INVALID_REQUEST, f"{edit.name} is named twice.")
        seen.add(edit.name)
        if not SET <= edit.operation <= SUBTRACT:
            raise Refused(ErrorCode.INVALID_REQUEST, f"Unknown operation {edit.operation}.")
        if edit.value is None and edit.operation != DELETE:
            raise Refused(ErrorCode.INVALID_REQUEST, f"{edit.name} needs a value.")
    for edit in edits:
        if settings is not None and edit.operation in (APPEND, SUBTRACT):
            _check_list(edit, settings)


def _check_list(edit: Edit, settings: Mapping[str, Setting]) -> None:
    if _known(settings, edit.name).kind is not Kind.LIST:
        what = "append to" if edit.operation == APPEND else "subtract from"
        raise Refused(ErrorCode.INVALID_CONFIG, f"{edit.name} is no list: cannot {what} it.")


def edited(
    change: Change,
    explicit: Mapping[str, str],
    effective: Mapping[str, ConfigValue],
) -> dict[str, str]:
    """The explicit configs after the change. Lists grow and shrink from what is in effect."""
    wanted = {} if change.replace else dict(explicit)
    for edit in change.edits:
        if edit.operation == DELETE:
            if edit.name in IMMUTABLE and change.kind == TOPIC_RESOURCE:
                raise Refused(ErrorCode.INVALID_CONFIG, f"{edit.name} is fixed at creation.")
            wanted.pop(edit.name, None)
        elif edit.operation == SET:
            wanted[edit.name] = edit.value or ""
        else:
            wanted[edit.name] = _list_after(edit, effective)
    return wanted


def _list_after(edit: Edit, effective: Mapping[str, ConfigValue]) -> str:
    words = _words(effective[edit.name].value)
    given = _words(edit.value)
    if edit.operation == APPEND:
        return ",".join(dict.fromkeys(words + given))
    return ",".join(word for word in words if word not in given)


def _words(text: str | None) -> list[str]:
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def _known(settings: Mapping[str, Setting], name: str) -> Setting:
    try:
        return known(settings, name, "config")
    except ConfigError as error:
        raise Refused(ErrorCode.INVALID_CONFIG, str(error)) from None


async def _alter_topic(change: Change, context: Context) -> None:
    if not change.name:
        raise Refused(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    reason = refusal_of(change.name, reserved=True)
    if reason:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
    reason = validate_all({edit.name: edit.value for edit in change.edits if edit.operation == SET})
    if reason:
        raise Refused(ErrorCode.INVALID_CONFIG, reason)
    for _ in range(ATTEMPTS):
        topic = await context.topics.get(change.name)
        if topic is None:
            raise _no_topic(change.name)
        effective = context.services.topic_configs.resolve(topic.name, topic.configs)
        wanted = edited(change, topic.configs, effective)
        names = {edit.name for edit in change.edits}
        reason = validate_change(topic.configs, {k: v for k, v in wanted.items() if k in names})
        if reason:
            raise Refused(ErrorCode.INVALID_CONFIG, reason)
        wanted |= {name: topic.configs[name] for name in IMMUTABLE if name in topic.configs}
        if change.validate_only or wanted == topic.configs:
            return
        definition = encode_definition(topic.definition(configs=wanted))
        reply = await context.store.run(
            topic_scripts.alter(
                context.keys, topic=topic.name, expected=topic.raw, definition=definition
            )
        )
        context.topics.drop()
        if reply.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise _no_topic(change.name)
        if reply.error == ErrorCode.NONE:
            return
    raise _busy()


def _busy() -> Refused:
    return Refused(ErrorCode.REQUEST_TIMED_OUT, "Others change it all the while: try again.")


def _no_topic(name: str) -> Refused:
    return Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")


async def _alter_broker(change: Change, context: Context) -> None:
    resource = ALL_BROKERS if not change.name else broker_resource(own_id(change.name, context))
    for edit in change.edits:
        if edit.operation != DELETE:
            _known(BROKER, edit.name)
    for _ in range(ATTEMPTS):
        await context.services.refresh_configs()
        table = context.services.configs
        explicit = table.explicit(resource)
        effective = {value.name: value for value in context.settings}
        wanted = edited(change, explicit, effective)
        named = {edit.name: wanted[edit.name] for edit in change.edits if edit.name in wanted}
        try:
            _ = context.config.settings.with_dynamic({**valid(wanted, BROKER), **named})
        except ConfigError as error:
            raise Refused(ErrorCode.INVALID_REQUEST, str(error)) from None
        if await _store(change, resource, table.raw(resource), wanted, context):
            return
    raise _busy()


async def _alter_group(change: Change, context: Context) -> None:
    if not change.name:
        raise Refused(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    resource = group_resource(change.name)
    for _ in range(ATTEMPTS):
        await context.services.refresh_configs()
        table = context.services.configs
        effective = table.group(change.name, context.settings)
        wanted = edited(change, table.explicit(resource), effective)
        for edit in change.edits:
            if edit.name in wanted:
                _check_group(edit.name, wanted[edit.name], context.settings)
        if await _store(change, resource, table.raw(resource), wanted, context):
            return
    raise _busy()


def _check_group(name: str, value: str, settings: Settings) -> None:
    setting = _known(GROUP, name)
    try:
        number = setting.parse(value)
    except ConfigError as error:
        raise Refused(ErrorCode.INVALID_CONFIG, str(error)) from None
    if not isinstance(number, int):
        return
    for word, sign in (("min", 1), ("max", -1)):
        bound = FROM_BROKER[name].replace("group.consumer.", f"group.consumer.{word}.")
        if bound in BROKER and number * sign < settings.integer(bound) * sign:
            limit = settings.integer(bound)
            raise Refused(ErrorCode.INVALID_CONFIG, f"{name} is {number}, but {bound} is {limit}.")


async def _store(
    change: Change, resource: str, expected: bytes, configs: Mapping[str, str], context: Context
) -> bool:
    """Whether the change is done; False: somebody else's came first, begin again."""
    wanted = encode_configs(configs)
    if change.validate_only or wanted == expected:
        return True
    reply = await context.store.run(
        config_scripts.alter(context.keys, resource=resource, expected=expected, wanted=wanted)
    )
    await context.services.refresh_configs()
    return reply.error == ErrorCode.NONE


def plain_id(name: str) -> str:
    """A broker's id without the zeros that may stand before it."""
    return name.lstrip("0") or name[:1]


def own_id(name: str, context: Context) -> int:
    """This broker's id, which is the only one `name` may be."""
    me = context.services.registration.me.id
    if not name.isascii() or not name.isdigit():
        raise Refused(ErrorCode.INVALID_REQUEST, f"A broker's id is a number, not {name!r}.")
    if plain_id(name) != str(me):
        raise Refused(ErrorCode.INVALID_REQUEST, f"This is broker {me}: ask broker {name} itself.")
    return me
