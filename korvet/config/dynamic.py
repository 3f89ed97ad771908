"""Configs that were changed while brokers run, as Redis has them: one read, one cached table.

Rules
- A field of `korvet:configs` is a resource: `broker:` (all brokers), `broker:<id>` (one), or
  `group:<encoded group id>`; its value is JSON, name to text. Scripts treat it as opaque bytes.
- A broker's own change wins over all brokers', that over what it was started with.
- What this version does not know, or would refuse, is passed over: another version put it there.
- So are bounds that contradict each other, which two resources, or one and what a broker was
  started with, can do; what else was changed stays in effect.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from korvet import logfmt
from korvet.config.broker_settings import BROKER
from korvet.config.group_settings import FROM_BROKER, GROUP
from korvet.config.setting import ConfigError, Setting, Source
from korvet.config.values import BOUNDS, ConfigValue, Settings, Synonym
from korvet.keys import Keys, encode_group

VERSION_FIELD = b":version"
ALL_BROKERS = "broker:"

log = logfmt.get("configs")


class Reader(Protocol):
    """What the table needs of a store."""

    async def command(self, *command: Any) -> Any: ...


def broker_resource(node_id: int) -> str:
    """The field of one broker's own configs."""
    return f"{ALL_BROKERS}{node_id}"


def group_resource(group_id: str) -> str:
    """The field of one group's configs."""
    return f"group:{encode_group(group_id)}"


def encode_configs(configs: Mapping[str, str]) -> bytes:
    """The configs as the bytes Redis keeps; none is empty."""
    return msgspec.json.encode(configs, order="deterministic") if configs else b""


class ConfigTable:
    """The table, as of the last refresh."""

    def __init__(self, store: Reader, keys: Keys) -> None:
        self._store = store
        self._keys = keys
        self._rows: dict[str, bytes] = {}
        self._parsed: dict[str, dict[str, str]] = {}
        self._version: bytes | None = None
        self.has_groups = False
        """Whether anything was changed about any group."""

    async def refresh(self) -> bool:
        """The table is as Redis had it after this call began; whether that is news."""
        key = self._keys.configs()
        version = await self._store.command("HGET", key, VERSION_FIELD) or b"0"
        if version == self._version:
            return False
        flat = await self._store.command("HGETALL", key)
        rows = dict(zip(flat[::2], flat[1::2], strict=True))
        self._version = rows.pop(VERSION_FIELD, b"0")
        self._rows = {name.decode(): raw for name, raw in rows.items()}
        self._parsed = {name: _parse(name, raw) for name, raw in self._rows.items()}
        self.has_groups = bool(self.groups())
        return True

    def raw(self, resource: str) -> bytes:
        """The very bytes in Redis, empty for none."""
        return self._rows.get(resource, b"")

    def explicit(self, resource: str) -> dict[str, str]:
        """What was changed about the resource."""
        return dict(self._parsed.get(resource, ()))

    def groups(self) -> list[str]:
        """The encoded ids of the groups something was changed about."""
        return sorted(
            name.removeprefix("group:") for name in self._rows if name.startswith("group:")
        )

    def over(self, settings: Settings, node_id: int) -> Settings:
        """The settings of that broker under the changes."""
        resources = (ALL_BROKERS, broker_resource(node_id))
        layers = [valid(self.explicit(resource), BROKER) for resource in resources]
        try:
            return settings.with_dynamic(*layers)
        except ConfigError as error:
            log.warning("changed settings contradict each other and are not used", why=str(error))
        bounds = {name for pair in BOUNDS for name in pair}
        return settings.with_dynamic(
            *({name: layer[name] for name in layer.keys() - bounds} for layer in layers)
        )

    def group(self, group_id: str, settings: Settings) -> dict[str, ConfigValue]:
        """Every config of a group by name, laid over the broker's settings."""
        explicit = valid(self.explicit(group_resource(group_id)), GROUP)
        return {name: _group_value(name, explicit, settings) for name in GROUP}

    def group_integer(self, group_id: str, name: str, settings: Settings) -> int:
        """A group's own number, or else the broker's."""
        raw = self._parsed.get(group_resource(group_id), {}).get(name)
        if raw is not None and _is_valid(name, raw, GROUP):
            return int(raw)
        return settings.integer(FROM_BROKER[name])


def _group_value(name: str, explicit: Mapping[str, str], settings: Settings) -> ConfigValue:
    synonyms = settings.synonyms(FROM_BROKER[name])
    if name in explicit:
        synonyms = (Synonym(name, explicit[name], Source.DYNAMIC_GROUP), *synonyms)
    return ConfigValue(GROUP[name], synonyms[0].value, synonyms[0].source, synonyms)


def _parse(resource: str, raw: bytes) -> dict[str, str]:
    try:
        return msgspec.json.decode(raw, type=dict[str, str])
    except msgspec.MsgspecError as error:
        log.warning("changed configs make no sense here", resource=resource, why=str(error))
        return {}


def valid(configs: Mapping[str, str], known: Mapping[str, Setting]) -> dict[str, str]:
    """Those that this version knows and would take."""
    return {name: value for name, value in configs.items() if _is_valid(name, value, known)}


def _is_valid(name: str, value: str, known: Mapping[str, Setting]) -> bool:
    setting = known.get(name)
    if setting is None or not setting.dynamic:
        return False
    try:
        setting.parse(value)
    except ConfigError:
        return False
    return True
