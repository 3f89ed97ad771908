"""Values of the broker's settings: dynamic configs over start configuration over defaults."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from korvet.config.broker_settings import BROKER, LISTENER_PREFIX, find_broker_setting
from korvet.config.setting import ConfigError, Setting, Source, Value, find_setting

BOUNDS = tuple(
    (name, name.replace(".min.", ".max."))
    for name in BROKER
    if name.startswith("group.") and ".min." in name
)
"""Pairs of settings: the first must not exceed the second."""

STORED_URL = "remote_storage_url"
STORED: Mapping[str, str] = {
    STORED_URL: "remote.storage.url",
    "remote_storage_topics": "log.remote.storage.enable",
    "local_memory_bytes": "local.memory.bytes",
}
"""Settings that brokers store in Redis, for programs that read the log without a broker: field of
the cluster hash -> setting. `lua/broker/set_storage.lua` writes them."""


class Synonym(msgspec.Struct, frozen=True):
    """A source that has a value for a setting, as DescribeConfigs lists it."""

    name: str
    value: str | None
    source: Source


class ConfigValue(msgspec.Struct, frozen=True):
    """A setting with its value as text, the value's source and its synonyms."""

    setting: Setting
    value: str | None
    source: Source
    synonyms: tuple[Synonym, ...] = ()

    @property
    def name(self) -> str:
        return self.setting.name

    @property
    def parsed(self) -> Value:
        """Return the value in its type."""
        return self.setting.parse(self.value or "")

    @property
    def is_default(self) -> bool:
        return self.source is Source.DEFAULT

    @property
    def read_only(self) -> bool:
        return self.setting.immutable or not self.setting.dynamic


class Settings:
    """All broker settings, immutable. Unknown names and invalid values raise ConfigError.

    `defaults` replace those of the table: with the embedded server some differ.
    """

    __slots__ = ("_layers", "_values")

    def __init__(
        self,
        static: Mapping[str, str] | None = None,
        dynamic: Mapping[str, str] | None = None,
        own: Mapping[str, str] | None = None,
        defaults: Mapping[str, str] | None = None,
    ) -> None:
        self._layers: tuple[tuple[Source, dict[str, str]], ...] = (
            (Source.DYNAMIC_BROKER, dict(own or {})),
            (Source.DYNAMIC_DEFAULT_BROKER, dict(dynamic or {})),
            (Source.STATIC_BROKER, dict(static or {})),
            (Source.DEFAULT, dict(defaults or {})),
        )
        self._values: dict[str, Value | None] = {}
        for _, layer in self._layers:
            for name, value in layer.items():
                setting = find_broker_setting(name)
                if name.startswith(LISTENER_PREFIX):
                    setting.parse(value)
        for name, setting in BROKER.items():
            text = self.text_of(name)
            self._values[name] = None if text is None else setting.parse(text)
        self._refuse_contradictions()

    def with_dynamic(
        self, dynamic: Mapping[str, str], own: Mapping[str, str] | None = None
    ) -> "Settings":
        """Return settings with the same start values and other dynamic configs.

        `dynamic` are those of all brokers, `own` those of this one. Raises ConfigError for a
        setting that is read only at start.
        """
        for name in (*dynamic, *(own or {})):
            if not find_broker_setting(name).dynamic:
                raise ConfigError(
                    f"{name} is read only at start: set it in the start configuration and restart."
                )
        _, _, static, defaults = (layer for _, layer in self._layers)
        return Settings(static, dynamic, own, defaults)

    def with_start(self, values: Mapping[str, str]) -> "Settings":
        """Return settings with these start values too, and the same dynamic configs."""
        own, dynamic, static, defaults = (layer for _, layer in self._layers)
        return Settings({**static, **values}, dynamic, own, defaults)

    def with_defaults(self, values: Mapping[str, str]) -> "Settings":
        """Return settings with these defaults, and the same given values."""
        own, dynamic, static, defaults = (layer for _, layer in self._layers)
        return Settings(static, dynamic, own, {**defaults, **values})

    @property
    def listeners(self) -> set[str]:
        """Names of the listeners that have their own settings, in lower case."""
        return {
            name.split(".")[2]
            for _, layer in self._layers
            for name in layer
            if name.startswith(LISTENER_PREFIX)
        }

    def is_own(self, listener: str, name: str) -> bool:
        """Return whether the listener has its own value of the setting."""
        own = f"{LISTENER_PREFIX}{listener.lower()}.{name}"
        return any(own in layer for _, layer in self._layers)

    def of_listener(self, name: str) -> "Settings":
        """Return the settings of the listener: its own values, then those of the broker."""
        prefix = f"{LISTENER_PREFIX}{name.lower()}."
        own, cluster, static, defaults = (
            layer
            | {each.removeprefix(prefix): layer[each] for each in layer if each.startswith(prefix)}
            for _, layer in self._layers
        )
        return Settings(static, cluster, own, defaults)

    def text_of(self, name: str) -> str | None:
        """Return the value as text, or None if the setting is unset."""
        for _, layer in self._layers:
            if name in layer:
                return layer[name]
        return BROKER[name].default

    def integer(self, name: str) -> int:
        value = self._values[name]
        assert isinstance(value, int), f"{name} is not a whole number"
        return value

    def flag(self, name: str) -> bool:
        value = self._values[name]
        assert isinstance(value, bool), f"{name} is not true or false"
        return value

    def text(self, name: str) -> str:
        value = self._values[name]
        assert isinstance(value, str), f"{name} is not text"
        return value

    def words(self, name: str) -> tuple[str, ...]:
        value = self._values[name]
        assert isinstance(value, tuple), f"{name} is not a list"
        return value

    def synonyms(self, name: str) -> tuple[Synonym, ...]:
        """Return every value for the name with its source, the one in effect first."""
        found = [
            Synonym(name, BROKER[name].shown(layer[name]), source)
            for source, layer in self._layers
            if name in layer
        ]
        if BROKER[name].default is not None and name not in self._layers[-1][1]:
            found.append(Synonym(name, BROKER[name].default, Source.DEFAULT))
        return tuple(found)

    def describe(self, name: str) -> ConfigValue:
        """Return the setting with its value, source and synonyms.

        Raises ConfigError for an unknown name.
        """
        setting = find_setting(BROKER, name, "setting")
        synonyms = self.synonyms(name)
        if not synonyms:
            return ConfigValue(setting, None, Source.DEFAULT)
        return ConfigValue(setting, synonyms[0].value, synonyms[0].source, synonyms)

    def __iter__(self) -> Iterator[ConfigValue]:
        return (self.describe(name) for name in BROKER)

    def _refuse_contradictions(self) -> None:
        for low, high in BOUNDS:
            if self.integer(low) > self.integer(high):
                raise ConfigError(
                    f"{low} ({self.integer(low)}) must not exceed {high} ({self.integer(high)})."
                )


def with_stored(settings: Settings, values: Sequence[bytes | None]) -> Settings:
    """Return the settings with the stored ones that they do not give themselves.

    `values` are those of STORED, in its order. A remote store that brokers had is one to read from,
    whether or not they still copy to it.
    """
    found = {
        setting: value.decode()
        for setting, value in zip(STORED.values(), values, strict=True)
        if value is not None
    }
    if "remote.storage.url" in found:
        found["remote.log.storage.system.enable"] = "true"
    missing = {name: text for name, text in found.items() if settings.describe(name).is_default}
    return settings.with_start(missing)
