"""Edits of configs: which are valid, and the configs that result from them."""

from collections.abc import Mapping, Sequence
from enum import IntEnum

import msgspec

from korvet.base.errors import ErrorCode
from korvet.config.broker_settings import BROKER
from korvet.config.dynamic import select_valid
from korvet.config.group_settings import GROUP, bound
from korvet.config.setting import ConfigError, Kind, Setting, find_setting
from korvet.config.topic_policy import validate_all
from korvet.config.topic_settings import IMMUTABLE, TOPIC
from korvet.config.values import ConfigValue, Settings
from korvet.topics.lifecycle import Refused, check_topic_name, invalid_request

SET, DELETE, APPEND, SUBTRACT = range(4)


class ConfigResourceType(IntEnum):
    """The types of resources that have configs, by Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


SETTINGS: dict[int, Mapping[str, Setting]] = {
    ConfigResourceType.TOPIC: TOPIC,
    ConfigResourceType.BROKER: BROKER,
    ConfigResourceType.GROUP: GROUP,
}


class Edit(msgspec.Struct, frozen=True):
    """Change of one config; `operation` is IncrementalAlterConfigs' number."""

    name: str
    value: str | None
    operation: int = SET


class Change(msgspec.Struct, frozen=True):
    """The edits of one resource. `replace`: configs that are not named get their default."""

    kind: int
    name: str
    edits: Sequence[Edit]
    replace: bool
    validate_only: bool


def check_edits(edits: Sequence[Edit], settings: Mapping[str, Setting] | None) -> None:
    """Check the edits alone, before the resource is looked up."""
    seen: set[str] = set()
    for edit in edits:
        if edit.name in seen:
            raise invalid_request(f"{edit.name} is named twice.")
        seen.add(edit.name)
        if not SET <= edit.operation <= SUBTRACT:
            raise invalid_request(f"Unknown operation {edit.operation}.")
        if edit.value is None and edit.operation != DELETE:
            raise invalid_request(f"{edit.name} needs a value.")
    for edit in edits:
        if settings is not None and edit.operation in (APPEND, SUBTRACT):
            _check_list(edit, settings)


def _check_list(edit: Edit, settings: Mapping[str, Setting]) -> None:
    if require_setting(settings, edit.name).kind is not Kind.LIST:
        verb = "append to" if edit.operation == APPEND else "subtract from"
        raise Refused(ErrorCode.INVALID_CONFIG, f"{edit.name} is no list: cannot {verb} it.")


def check_topic_change(change: Change) -> None:
    if not change.name:
        raise invalid_request("Default topic resources are not allowed.")
    reason = check_topic_name(change.name, reserved=True)
    if reason:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
    reason = validate_all({edit.name: edit.value for edit in change.edits if edit.operation == SET})
    if reason:
        raise Refused(ErrorCode.INVALID_CONFIG, reason)


def apply_edits(
    change: Change, explicit: Mapping[str, str], effective: Mapping[str, ConfigValue]
) -> dict[str, str]:
    """Return the explicit configs after the change.

    APPEND and SUBTRACT start from the value in effect.
    """
    configs = {} if change.replace else dict(explicit)
    for edit in change.edits:
        if edit.operation == DELETE:
            if edit.name in IMMUTABLE and change.kind == ConfigResourceType.TOPIC:
                raise Refused(ErrorCode.INVALID_CONFIG, f"{edit.name} is fixed at creation.")
            configs.pop(edit.name, None)
        elif edit.operation == SET:
            configs[edit.name] = edit.value or ""
        else:
            configs[edit.name] = _edit_list(edit, effective)
    return configs


def _edit_list(edit: Edit, effective: Mapping[str, ConfigValue]) -> str:
    words = _split_words(effective[edit.name].value)
    given = _split_words(edit.value)
    if edit.operation == APPEND:
        return ",".join(dict.fromkeys(words + given))
    return ",".join(word for word in words if word not in given)


def _split_words(text: str | None) -> list[str]:
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def require_setting(settings: Mapping[str, Setting], name: str) -> Setting:
    try:
        return find_setting(settings, name, "config")
    except ConfigError as error:
        raise Refused(ErrorCode.INVALID_CONFIG, str(error)) from None


def check_group_config(name: str, value: str, settings: Settings) -> None:
    setting = require_setting(GROUP, name)
    try:
        number = setting.parse(value)
    except ConfigError as error:
        raise Refused(ErrorCode.INVALID_CONFIG, str(error)) from None
    if not isinstance(number, int):
        return
    for word, sign in (("min", 1), ("max", -1)):
        setting_name = bound(name, word)
        if setting_name and number * sign < settings.integer(setting_name) * sign:
            limit = settings.integer(setting_name)
            reason = f"{name} is {number}, but {setting_name} is {limit}."
            raise Refused(ErrorCode.INVALID_CONFIG, reason)


def check_heartbeats(configs: Mapping[str, str], settings: Settings) -> None:
    """Refuse a session timeout of a group that no heartbeat can renew."""
    own = select_valid(configs, GROUP)
    for kind in ("consumer", "share", "streams"):
        names = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        session, interval = (
            int(own[name]) if name in own else settings.integer(f"group.{name}") for name in names
        )
        if session <= interval and not configs.keys().isdisjoint(names):
            reason = f"{names[0]} ({session}) must be greater than {names[1]} ({interval})."
            raise Refused(ErrorCode.INVALID_CONFIG, reason)
