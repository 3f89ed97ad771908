"""Store dynamic configs in Redis and apply them to the settings of a running broker.

Rules
- A field of `korvet:configs` is a resource: `broker:` (all brokers), `broker:<id>` (one), or
  `group:<encoded group id>`; its value is JSON, name to text. Scripts treat it as opaque bytes.
- A broker's own change overrides the cluster-wide one, which overrides the start configuration.
- Names or values that this version does not accept are skipped: another version stored them.
- Contradicting bounds (of two resources, or of one and the start configuration) are skipped too;
  the other changed settings stay in effect.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from korvet.base import logfmt
from korvet.config.broker_settings import BROKER
from korvet.config.group_settings import FROM_BROKER, GROUP
from korvet.config.setting import ConfigError, Setting, Source
from korvet.config.topic_policy import Pattern, TopicConfigs
from korvet.config.values import BOUNDS, ConfigValue, Settings, Synonym
from korvet.scripts.call import encode_group
from korvet.scripts.keys import Keys
from korvet.store.calls import AsyncCalls

VERSION_FIELD = b":version"
ALL_BROKERS = "broker:"

log = logfmt.get("configs")


def broker_resource(node_id: int) -> str:
    """Return the field of one broker's own configs."""
    return f"{ALL_BROKERS}{node_id}"


def group_resource(group_id: str) -> str:
    """Return the field of one group's configs."""
    return f"group:{encode_group(group_id)}"


def encode_configs(configs: Mapping[str, str]) -> bytes:
    """Encode configs as stored in Redis; no configs are empty bytes."""
    return msgspec.json.encode(configs, order="deterministic") if configs else b""


class ConfigTable:
    """A cached copy of the dynamic configs in Redis."""

    def __init__(self, store: AsyncCalls, keys: Keys) -> None:
        self._store = store
        self._keys = keys
        self._rows: dict[str, bytes] = {}
        self._parsed: dict[str, dict[str, str]] = {}
        self.version: bytes | None = None
        """Changes with the table; None before the first read."""
        self.has_groups = False
        """Whether any group has dynamic configs."""

    async def refresh(self) -> bool:
        """Read the table if its version changed; return whether it did."""
        key = self._keys.configs()
        version = await self._store.command("HGET", key, VERSION_FIELD) or b"0"
        if version == self.version:
            return False
        flat = await self._store.command("HGETALL", key)
        rows = dict(zip(flat[::2], flat[1::2], strict=True))
        self.version = rows.pop(VERSION_FIELD, b"0")
        self._rows = {name.decode(): raw for name, raw in rows.items()}
        self._parsed = {name: decode_configs(name, raw) for name, raw in self._rows.items()}
        self.has_groups = bool(self.groups())
        return True

    def raw(self, resource: str) -> bytes:
        """Return the stored bytes of a resource, empty if it has none."""
        return self._rows.get(resource, b"")

    def explicit(self, resource: str) -> dict[str, str]:
        """Return the dynamic configs of a resource."""
        return dict(self._parsed.get(resource, ()))

    def resources(self, prefix: str) -> list[str]:
        """Return the resources that start with `prefix`, sorted."""
        return sorted(name for name in self._rows if name.startswith(prefix))

    def groups(self) -> list[str]:
        """Return the encoded ids of the groups that have dynamic configs."""
        return [name.removeprefix("group:") for name in self.resources("group:")]

    def overlay(self, settings: Settings, node_id: int) -> Settings:
        """Return the settings with the dynamic configs of that broker applied."""
        resources = (ALL_BROKERS, broker_resource(node_id))
        layers = [select_valid(self.explicit(resource), BROKER) for resource in resources]
        try:
            return settings.with_dynamic(*layers)
        except ConfigError as error:
            log.warning("dynamic configs skipped: contradicting bounds", reason=str(error))
        bounds = {name for pair in BOUNDS for name in pair}
        return settings.with_dynamic(
            *({name: layer[name] for name in layer.keys() - bounds} for layer in layers)
        )

    def group(self, group_id: str, settings: Settings) -> dict[str, ConfigValue]:
        """Return every config of a group by name; defaults come from the broker."""
        explicit = select_valid(self.explicit(group_resource(group_id)), GROUP)
        return group_values(explicit, settings)


@dataclass(eq=False)
class DynamicBrokerConfig:
    """The settings and topic defaults in effect, with the dynamic configs applied."""

    table: ConfigTable
    start: Settings
    """The settings of the start configuration, without dynamic configs."""
    topic_configs: TopicConfigs
    patterns: Sequence[Pattern]
    node_id: int
    on_change: Callable[[TopicConfigs], None]

    def __post_init__(self) -> None:
        self.settings = self.start

    async def refresh(self) -> None:
        """Read the dynamic configs from Redis and apply those that changed."""
        if await self.table.refresh():
            self.use_start(self.start)

    def use_start(self, start: Settings) -> None:
        """Take these settings as those of the start configuration."""
        self.start = start
        self.settings = self.table.overlay(start, self.node_id)
        self.topic_configs = TopicConfigs(self.settings, self.patterns)
        self.on_change(self.topic_configs)


def group_values(explicit: Mapping[str, str], settings: Settings) -> dict[str, ConfigValue]:
    """Return every config of a group by name, given its valid dynamic configs."""
    return {name: _group_value(name, explicit, settings) for name in GROUP}


def _group_value(name: str, explicit: Mapping[str, str], settings: Settings) -> ConfigValue:
    if name in FROM_BROKER:
        synonyms = settings.synonyms(FROM_BROKER[name])
    else:
        synonyms = (Synonym(name, GROUP[name].default, Source.DEFAULT),)
    if name in explicit:
        synonyms = (Synonym(name, explicit[name], Source.DYNAMIC_GROUP), *synonyms)
    return ConfigValue(GROUP[name], synonyms[0].value, synonyms[0].source, synonyms)


def decode_configs(resource: str, raw: bytes) -> dict[str, str]:
    """Decode the configs of a resource that Redis stores; none if they are malformed."""
    try:
        return msgspec.json.decode(raw, type=dict[str, str])
    except (ValueError, RecursionError) as error:
        log.warning("invalid dynamic configs", resource=resource, reason=str(error))
        return {}


def select_valid(configs: Mapping[str, str], known: Mapping[str, Setting]) -> dict[str, str]:
    """Return the configs that this version knows and accepts."""
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
