"""Start configuration: one frozen struct, read from a file, the environment and flags.

Rules
- Precedence: command line, environment, file, defaults.
- The file is TOML: options by their long name, settings under Kafka's names (quoted or as dotted
  keys), and `[[topics]] match = "glob"` blocks with topic configs. If two blocks match, the later
  one wins.
- Every error is one ConfigError with one sentence.
"""

import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from korvet.config.broker_settings import BROKER, LISTENER_PREFIX, find_broker_setting
from korvet.config.listeners import MAP, PLAINTEXT, Address, Listener, parse_listeners
from korvet.config.setting import ConfigError, StartError, find_setting, in_milliseconds
from korvet.config.topic_policy import Pattern, TopicConfigs
from korvet.config.values import Settings

__all__ = ["Address", "Config", "ConfigError", "StartError", "load"]

REDIS_VARIABLE = "KORVET_REDIS_URL"
_SCHEMES = re.compile(r"(rediss?(\+sentinel|\+cluster)?|unix)://")
_ZOOKEEPER = re.compile(r"[^,/\s:]+:\d{1,5}(,[^,/\s:]+:\d{1,5})*(/[^\s,]*)?")
OPS_DEFAULT = Address("127.0.0.1", 9080)
_OFF = "off"
_LEVELS = ("debug", "info", "warning", "error")
_KAFKAS = {
    "broker.id": "node-id",
    "node.id": "node-id",
    "log.dir": "data-dir",
    "log.dirs": "data-dir",
}
"""Settings of a Kafka server.properties that are options here."""
_ALIASES = {"listeners": "listen", "advertised.listeners": "advertise"}
"""Kafka's names of options; a file and --set take them too."""


class Config(msgspec.Struct, frozen=True):
    """The start configuration of a broker. OPTIONS describes the fields."""

    listeners: tuple[Listener, ...] = (Listener(),)
    legacy_listen: Address | None = None
    zookeeper: str | None = None
    ops: Address | None = None
    ops_is_chosen: bool = False
    """Whether `ops` was configured: otherwise a free port is taken if its port is in use; not an
    option."""
    ops_tls: bool = False
    """Whether the ops port has TLS; not an option."""
    ops_socket: str | None = None
    """Unix socket on which a worker serves its parent instead of the ops port; not an option."""
    worker: int = 0
    """Number of this worker process; not an option."""
    read_only: bool = False
    """Whether requests that write are refused; not an option."""
    redis: str | None = None
    redis_server: str | None = None
    data_dir: str = "./korvet-data"
    node_id: int = 0
    node_id_is_chosen: bool = True
    """Whether `node_id` stays as it is, instead of a free one from Redis; not an option."""
    redis_lost_nothing: bool = False
    """Whether Redis has all that it acknowledged before it was started last; not an option."""
    namespace: str = "korvet"
    workers: int = 1
    preset: str | None = None
    log_level: str = "info"
    log_format: str = "text"
    settings: Settings = msgspec.field(default_factory=Settings)
    patterns: tuple[Pattern, ...] = ()

    @property
    def ops_listeners(self) -> "tuple[Listener, ...]":
        """The ops port as a listener, if it has TLS: its settings are those of `ops`.

        It authenticates users itself: as for SASL_SSL, only its own ssl.client.auth counts.
        """
        if self.ops is None or not self.ops_tls:
            return ()
        return (Listener("OPS", "SASL_SSL", self.ops),)

    @property
    def topics(self) -> TopicConfigs:
        """Topic defaults under the start configuration."""
        return TopicConfigs(self.settings, self.patterns)


OPTIONS: dict[str, str] = {
    "listen": "[PROTOCOL://]HOST:PORT to serve Kafka clients on; PROTOCOL is PLAINTEXT (default), "
    "SSL, SASL_PLAINTEXT or SASL_SSL; port 0 picks a free one. Repeat.",
    "advertise": "[PROTOCOL://]HOST:PORT that clients connect to; default is the listening "
    "address. Repeat.",
    "legacy-listen": "HOST:PORT to serve Kafka 0.7 clients on; off by default.",
    "zookeeper": "HOST:PORT[/chroot] of a ZooKeeper to register in, for Kafka 0.7 consumers.",
    "ops": "[SSL://]HOST:PORT for the console, /metrics, /livez and /readyz, or off. Default: "
    f"{OPS_DEFAULT}, or a free port if that is in use.",
    "redis": f"URL of the Redis to use (or {REDIS_VARIABLE}); without it Korvet starts one.",
    "redis-server": "Path of the redis-server or valkey-server that Korvet starts.",
    "data-dir": "Data directory of the Redis that Korvet starts.",
    "node-id": "This broker's id, different for each broker on one Redis; by default the lowest "
    "one that is free, 0 with a Redis that Korvet starts.",
    "namespace": "First part of every Redis key.",
    "workers": "Processes that share the port.",
    "preset": "Settings that a start stores in Redis for all brokers, unless it has one of them: "
    "kafka, for new topics as Kafka's (dense offsets, batches) and groups that begin at once, or "
    "redis, for the defaults.",
    "log-level": "debug, info, warning or error.",
    "log-format": "text or json.",
}

PRESETS: dict[str, dict[str, str]] = {
    "redis": {
        "storage.format": "record",
        "offset.mode": "time",
        "group.initial.rebalance.delay.ms": "3000",
    },
    "kafka": {
        "storage.format": "batch",
        "offset.mode": "dense",
        "group.initial.rebalance.delay.ms": "0",
    },
}
"""The settings that each preset stores for all brokers."""


def load(
    options: Mapping[str, str | None],
    *,
    file: Path | None = None,
    sets: Sequence[str] = (),
    environ: Mapping[str, str],
) -> Config:
    """Return the configuration given by options (long names), a file and NAME=VALUE settings."""
    given, settings, patterns = _read(file) if file else ({}, {}, ())
    if environ.get(REDIS_VARIABLE):
        given["redis"] = environ[REDIS_VARIABLE]
    settings |= dict(_assignment(text) for text in sets)
    given |= {option: settings.pop(name) for name, option in _ALIASES.items() if name in settings}
    given |= {name: value for name, value in options.items() if value is not None}
    is_chosen = "ops" in given
    ops, ops_tls = _ops(given.pop("ops", str(OPS_DEFAULT)))
    values = Settings({name: in_milliseconds(name, text) for name, text in settings.items()})
    listeners = parse_listeners(
        given.pop("listen", str(Listener())), given.pop("advertise", ""), values.words(MAP)
    )
    config = Config(
        listeners=listeners,
        ops=ops,
        ops_is_chosen=is_chosen,
        ops_tls=ops_tls,
        node_id_is_chosen="node-id" in given,
        settings=values,
        patterns=patterns,
        **_typed(given),
    )
    _refuse_shared(config)
    names = {each.name.lower() for each in (*listeners, *config.ops_listeners)}
    for name in values.listeners - names:
        raise ConfigError(f"{LISTENER_PREFIX}{name}: there is no listener {name.upper()}.")
    _ = config.topics  # raise for invalid patterns at start, not at the first topic
    return config


def _ops(text: str) -> tuple[Address | None, bool]:
    """Return the address of the ops port, and whether it has TLS."""
    if text == _OFF:
        return None, False
    protocol, separator, address = text.partition("://")
    if not separator:
        return Address.parse(text, "--ops"), False
    if protocol.upper() not in ("SSL", PLAINTEXT):
        raise ConfigError(f"--ops must be [SSL://]HOST:PORT, not {text!r}.")
    return Address.parse(address, "--ops"), protocol.upper() == "SSL"


def _assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"--set needs NAME=VALUE, for example num.partitions=3, not {text!r}.")
    _refuse_unknown(name.strip())
    return name.strip(), value.strip()


def _refuse_unknown(name: str, options: Collection[str] = ()) -> None:
    """Raise ConfigError unless the name is a setting, an alias, or one of the options."""
    if name in _KAFKAS:
        option = _KAFKAS[name]
        raise ConfigError(
            f"{name} is not a setting here: use the option --{option}, or {option} in a file."
        )
    if name not in _ALIASES and name not in BROKER:
        if name.startswith(LISTENER_PREFIX):
            find_broker_setting(name)
        else:
            known = (*BROKER, *_ALIASES, *options)
            find_setting(dict.fromkeys(known, BROKER["cluster.id"]), name, "setting")


def _typed(given: Mapping[str, str]) -> dict[str, Any]:
    """Convert options to the types of the struct's fields, and check each."""
    fields: dict[str, Any] = {}
    for name, text in given.items():
        option, field = f"--{name}", name.replace("-", "_")
        if name == "legacy-listen":
            fields[field] = Address.parse(text, option)
        elif name in ("node-id", "workers"):
            lowest, highest = (0, 2**31 - 1) if name == "node-id" else (1, 256)
            fields[field] = _whole(text, option, lowest, highest)
        else:
            fields[field] = _checked(name, text)
    return fields


def _refuse_shared(config: Config) -> None:
    """Raise ConfigError if two options have one address.

    With several workers the ports have SO_REUSEPORT, so that a second bind would succeed.
    """
    seen: dict[Address, str] = {}
    options = [("listen", listener.address) for listener in config.listeners]
    ops = config.ops if config.ops_is_chosen else None
    for name, where in (*options, ("legacy-listen", config.legacy_listen), ("ops", ops)):
        if where is None or not where.port:
            continue
        if where in seen:
            both = f"--{seen[where]} and --{name} are both"
            raise ConfigError(
                f"{both if seen[where] != name else 'Two addresses of --listen are'} {where}: "
                "use different ones."
            )
        seen[where] = name


def _whole(text: str, option: str, lowest: int, highest: int) -> int:
    if text.isascii() and text.isdigit() and len(text) < 12 and lowest <= int(text) <= highest:
        return int(text)
    raise ConfigError(f"{option} must be a whole number from {lowest} to {highest}, not {text!r}.")


def _checked(name: str, text: str) -> str:
    if name == "log-level" and text not in _LEVELS:
        raise ConfigError(f"--log-level must be one of {', '.join(_LEVELS)}, not {text!r}.")
    if name == "log-format" and text not in ("text", "json"):
        raise ConfigError(f"--log-format must be text or json, not {text!r}.")
    if name == "preset" and text not in PRESETS:
        raise ConfigError(f"--preset must be {' or '.join(PRESETS)}, not {text!r}.")
    if name == "redis":
        return redis_url(text)
    if name == "zookeeper" and not _ZOOKEEPER.fullmatch(text):
        raise ConfigError(f"--zookeeper must be HOST:PORT[/chroot], not {text!r}.")
    if name == "namespace":
        return checked_namespace(text)
    if not text:
        raise ConfigError(f"--{name} must not be empty.")
    return text


def checked_namespace(text: str) -> str:
    """Return the text if it can be the first part of every key; raise ConfigError otherwise."""
    if not (text and text.isascii() and _plain(text)):
        raise ConfigError(f"--namespace may hold letters, digits, '.', '_' and '-', not {text!r}.")
    return text


def redis_url(text: str) -> str:
    """Return the URL if its scheme is one of Redis; raise ConfigError otherwise."""
    if not _SCHEMES.match(text):
        # Only the scheme is shown: the URL may hold a password.
        scheme, colon, _ = text.partition("://")
        raise ConfigError(
            "--redis must be a URL such as redis://localhost:6379, unix:///PATH, "
            "redis+sentinel://HOST:PORT/MASTER or redis+cluster://HOST:PORT"
            f"{f', not {scheme}://...' if colon else ''}."
        )
    return text


def _plain(text: str) -> bool:
    return len(text) <= 100 and all(char.isalnum() or char in "._-" for char in text)


def _read(file: Path) -> tuple[dict[str, str], dict[str, str], tuple[Pattern, ...]]:
    """Read the options, settings and topic patterns of a TOML file."""
    try:
        flat, patterns = _read_toml(file)
        options = {name: flat.pop(name) for name in OPTIONS if name in flat}
        for name in flat:
            _refuse_unknown(name, options=OPTIONS)
        return options, flat, patterns
    except ConfigError as error:
        raise ConfigError(f"--config {file}: {error}") from None


def _read_toml(file: Path) -> tuple[dict[str, str], tuple[Pattern, ...]]:
    """Return the values by dotted name, and the topic patterns. Raises ConfigError."""
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        # TOML sees `redis = ...` and `redis.timeout.ms = ...` as one key with two values.
        hint = '; names with dots may be quoted: "redis.timeout.ms" = 15000'
        advice = hint if "overwrite" in str(error) else ""
        if file.suffix == ".properties":
            advice = (
                "; Kafka's own file is not read: write each setting as NAME = VALUE with quotes "
                "around text, in a file named *.toml"
            )
        raise ConfigError(f"the file is not valid TOML: {error}{advice}.") from None
    patterns = tuple(_pattern(block) for block in _topic_blocks(content.pop("topics", [])))
    return _flatten(content), patterns


def _topic_blocks(blocks: object) -> list[dict[str, Any]]:
    if isinstance(blocks, list) and all(isinstance(block, dict) for block in blocks):
        return blocks
    raise ConfigError('topics must be [[topics]] blocks, each with match = "glob".')


def _pattern(block: dict[str, Any]) -> Pattern:
    match = block.pop("match", None)
    if not isinstance(match, str) or not match:
        raise ConfigError('Each [[topics]] block needs match = "glob".')
    return Pattern(match, _flatten(block))


def _flatten(table: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Flatten nested TOML tables to dotted names, so that `log.retention.ms = 1` works unquoted.

    Values become text.
    """
    flat: dict[str, str] = {}
    for key, value in table.items():
        name = prefix + key
        if isinstance(value, dict):
            flat |= _flatten(value, name + ".")
        else:
            flat[name] = _toml_text(name, value)
    return flat


def _toml_text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ",".join(value)
    raise ConfigError(f"{name} must be a text, a number, true, false or a list of texts.")
