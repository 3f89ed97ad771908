"""Change the configs of topics, brokers and groups (AlterConfigs, IncrementalAlterConfigs).

Rules
- A change is computed from the stored configs and written only if they are still the same,
  otherwise read and computed again. So two concurrent changes both take effect.
- Only the changed configs are validated: a config that another version stored stays as it is.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from korvet.admin.disabled_tiering import (
    SEGMENTS_WOULD_STAY,
    TIERING,
    drop_segments,
    with_segments,
)
from korvet.admin.results import outcome
from korvet.config.broker_settings import BROKER
from korvet.config.dynamic import (
    ALL_BROKERS,
    DynamicBrokerConfig,
    broker_resource,
    encode_configs,
    group_resource,
    select_valid,
)
from korvet.config.group_settings import GROUP, bound
from korvet.config.setting import ConfigError, Kind, Setting, find_setting
from korvet.config.topic_policy import validate_all, validate_change
from korvet.config.topic_settings import IMMUTABLE, TOPIC
from korvet.config.values import ConfigValue, Settings
from korvet.errors import ErrorCode
from korvet.keys import Keys
from korvet.scripts import config as config_scripts
from korvet.scripts import topic as topic_scripts
from korvet.topics.lifecycle import Refused
from korvet.topics.lifecycle import Store as TopicStore
from korvet.topics.table import Topic, TopicTable, check_topic_name, encode_definition

MAX_ATTEMPTS = 20
"""Attempts to write a change while concurrent changes are written first."""
SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC_RESOURCE, BROKER_RESOURCE, LOGGER_RESOURCE, CLIENT_METRICS_RESOURCE = 2, 4, 8, 16
GROUP_RESOURCE = 32
SETTINGS = {TOPIC_RESOURCE: TOPIC, BROKER_RESOURCE: BROKER, GROUP_RESOURCE: GROUP}

R = TypeVar("R")


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


class ConfigAdmin:
    """Validates and writes config changes."""

    def __init__(
        self,
        store: TopicStore,
        keys: Keys,
        topics: TopicTable,
        config: DynamicBrokerConfig,
        node_id: int,
    ) -> None:
        self._store = store
        self._keys = keys
        self._topics = topics
        self._config = config
        self._node_id = node_id

    async def alter_each(self, changes: Sequence[Change], row: Callable[..., R]) -> list[R]:
        """Apply the changes of a request; return a `row` of the response for each."""
        times = Counter((change.kind, change.name) for change in changes)
        twice = ErrorCode.INVALID_REQUEST, "Each resource must appear at most once."
        outcomes = [
            twice if times[change.kind, change.name] > 1 else await outcome(self.alter(change))
            for change in changes
        ]
        return [
            row(
                error_code=error,
                error_message=reason,
                resource_type=change.kind,
                resource_name=change.name,
            )
            for change, (error, reason) in zip(changes, outcomes, strict=True)
        ]

    async def alter(self, change: Change) -> None:
        """Apply the change, or only validate it (validate_only). Raises Refused."""
        _check_edits(change.edits, SETTINGS.get(change.kind))
        if change.kind == TOPIC_RESOURCE:
            await self._alter_topic(change)
        elif change.kind == BROKER_RESOURCE:
            await self._alter_broker(change)
        elif change.kind == GROUP_RESOURCE:
            await self._alter_group(change)
        elif change.kind == LOGGER_RESOURCE:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                "Log levels cannot change at run time: set --log-level when the broker starts.",
            )
        elif change.kind == CLIENT_METRICS_RESOURCE:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                "Client metrics are not supported: there are no subscriptions to configure.",
            )
        else:
            raise Refused(ErrorCode.INVALID_REQUEST, f"Unknown resource type {change.kind}")

    async def _alter_topic(self, change: Change) -> None:
        _check_topic_change(change)
        for _ in range(MAX_ATTEMPTS):
            topic = await self._topics.get(change.name)
            if topic is None:
                raise _unknown_topic(change.name)
            effective = self._config.topic_configs.resolve(topic.name, topic.configs)
            configs = apply_edits(change, topic.configs, effective)
            names = {edit.name for edit in change.edits}
            reason = validate_change(
                topic.configs, {k: v for k, v in configs.items() if k in names}
            ) or self._config.topic_configs.find_conflict(topic.name, configs)
            if reason:
                raise Refused(ErrorCode.INVALID_CONFIG, reason)
            dropped = await self._segments_to_drop(topic, configs)
            configs |= {name: topic.configs[name] for name in IMMUTABLE if name in topic.configs}
            if change.validate_only or configs == topic.configs:
                return
            definition = encode_definition(topic.definition(configs=configs))
            reply = await self._store.run(
                topic_scripts.alter(
                    self._keys, topic=topic.name, expected=topic.raw, definition=definition
                )
            )
            self._topics.invalidate()
            if reply.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise _unknown_topic(change.name)
            if reply.error == ErrorCode.NONE:
                await drop_segments(self._store, self._keys, topic, dropped)
                return
        raise _too_many_conflicts(change)

    async def _segments_to_drop(self, topic: Topic, configs: Mapping[str, str]) -> list[int]:
        """Return the partitions whose segments are deleted if the topic gets these configs.

        Raises Refused if it would not be tiered any more, and keep them.
        """
        policy = self._config.topic_configs.policy(topic.name, configs)
        is_same = all(topic.configs.get(name) == configs.get(name) for name in TIERING)
        if policy.remote_storage or is_same:
            return []
        found = await with_segments(self._store, self._keys, topic)
        if found and not policy.remote_delete_on_disable:
            raise Refused(ErrorCode.INVALID_CONFIG, SEGMENTS_WOULD_STAY)
        return found

    async def _alter_broker(self, change: Change) -> None:
        resource = ALL_BROKERS
        if change.name:
            resource = broker_resource(require_own_id(change.name, self._node_id))
        for edit in change.edits:
            if edit.operation != DELETE:
                _find_setting(BROKER, edit.name)
        config = self._config
        for _ in range(MAX_ATTEMPTS):
            await config.refresh()
            explicit = config.table.explicit(resource)
            effective = {value.name: value for value in config.settings}
            configs = apply_edits(change, explicit, effective)
            named = {edit.name: configs[edit.name] for edit in change.edits if edit.name in configs}
            try:
                _ = config.start.with_dynamic({**select_valid(configs, BROKER), **named})
            except ConfigError as error:
                raise Refused(ErrorCode.INVALID_REQUEST, str(error)) from None
            if await self._write(change, resource, config.table.raw(resource), configs):
                return
        raise _too_many_conflicts(change)

    async def _alter_group(self, change: Change) -> None:
        if not change.name:
            raise Refused(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
        resource = group_resource(change.name)
        config = self._config
        for _ in range(MAX_ATTEMPTS):
            await config.refresh()
            effective = config.table.group(change.name, config.settings)
            configs = apply_edits(change, config.table.explicit(resource), effective)
            for edit in change.edits:
                if edit.name in configs:
                    _check_group_config(edit.name, configs[edit.name], config.settings)
            _check_heartbeats(configs, config.settings)
            if await self._write(change, resource, config.table.raw(resource), configs):
                return
        raise _too_many_conflicts(change)

    async def alter_quotas(self, resource: str, changes: Mapping[str, str | None]) -> None:
        """Set the quotas of an entity, and remove those that are null. Raises Refused."""
        config = self._config
        for _ in range(MAX_ATTEMPTS):
            await config.refresh()
            configs = {**config.table.explicit(resource), **changes}
            left = {name: value for name, value in configs.items() if value is not None}
            if await self._store_configs(resource, config.table.raw(resource), left):
                return
        raise Refused(
            ErrorCode.REQUEST_TIMED_OUT, "The quotas were changed concurrently: try again."
        )

    async def _write(
        self, change: Change, resource: str, expected: bytes, configs: Mapping[str, str]
    ) -> bool:
        """Write the configs if `expected` is still stored; return whether it was."""
        return change.validate_only or await self._store_configs(resource, expected, configs)

    async def _store_configs(
        self, resource: str, expected: bytes, configs: Mapping[str, str]
    ) -> bool:
        wanted = encode_configs(configs)
        if wanted == expected:
            return True
        reply = await self._store.run(
            config_scripts.alter(self._keys, resource=resource, expected=expected, wanted=wanted)
        )
        await self._config.refresh()
        return bool(reply.error == ErrorCode.NONE)


def _check_edits(edits: Sequence[Edit], settings: Mapping[str, Setting] | None) -> None:
    """Check the edits alone, before the resource is looked up."""
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
    if _find_setting(settings, edit.name).kind is not Kind.LIST:
        verb = "append to" if edit.operation == APPEND else "subtract from"
        raise Refused(ErrorCode.INVALID_CONFIG, f"{edit.name} is no list: cannot {verb} it.")


def _check_topic_change(change: Change) -> None:
    if not change.name:
        raise Refused(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    reason = check_topic_name(change.name, reserved=True)
    if reason:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
    reason = validate_all({edit.name: edit.value for edit in change.edits if edit.operation == SET})
    if reason:
        raise Refused(ErrorCode.INVALID_CONFIG, reason)


def apply_edits(
    change: Change,
    explicit: Mapping[str, str],
    effective: Mapping[str, ConfigValue],
) -> dict[str, str]:
    """Return the explicit configs after the change.

    APPEND and SUBTRACT start from the value in effect.
    """
    configs = {} if change.replace else dict(explicit)
    for edit in change.edits:
        if edit.operation == DELETE:
            if edit.name in IMMUTABLE and change.kind == TOPIC_RESOURCE:
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


def _find_setting(settings: Mapping[str, Setting], name: str) -> Setting:
    try:
        return find_setting(settings, name, "config")
    except ConfigError as error:
        raise Refused(ErrorCode.INVALID_CONFIG, str(error)) from None


def _too_many_conflicts(change: Change) -> Refused:
    return Refused(
        ErrorCode.REQUEST_TIMED_OUT,
        f"The configs of {change.name!r} were changed concurrently {MAX_ATTEMPTS} times: "
        "try again.",
    )


def _unknown_topic(name: str) -> Refused:
    return Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")


def _check_group_config(name: str, value: str, settings: Settings) -> None:
    setting = _find_setting(GROUP, name)
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


def _check_heartbeats(configs: Mapping[str, str], settings: Settings) -> None:
    """Refuse a session timeout of a group that no heartbeat can renew."""
    own = select_valid(configs, GROUP)
    for kind in ("consumer", "share"):
        names = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        session, interval = (
            int(own[name]) if name in own else settings.integer(f"group.{name}") for name in names
        )
        if session <= interval and not configs.keys().isdisjoint(names):
            reason = f"{names[0]} ({session}) must be greater than {names[1]} ({interval})."
            raise Refused(ErrorCode.INVALID_CONFIG, reason)


def strip_leading_zeros(name: str) -> str:
    """Return a broker's id without leading zeros: 007 names broker 7."""
    return name.lstrip("0") or name[:1]


def require_own_id(name: str, node_id: int) -> int:
    """Return this broker's id; Refused if `name` is the id of another."""
    if not name.isascii() or not name.isdigit():
        raise Refused(ErrorCode.INVALID_REQUEST, f"A broker's id is a number, not {name!r}.")
    if strip_leading_zeros(name) != str(node_id):
        raise Refused(
            ErrorCode.INVALID_REQUEST, f"This is broker {node_id}: send this to broker {name}."
        )
    return node_id
