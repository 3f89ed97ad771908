"""Read a configuration file: TOML tables to dotted names, and [[topics]] blocks to patterns."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from korvet.config.setting import ConfigError
from korvet.config.topic_policy import Pattern


def read_toml(file: Path) -> tuple[dict[str, str], tuple[Pattern, ...]]:
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
    patterns = tuple(_pattern(block) for block in _tables(content.pop("topics", [])))
    return _flatten(content), patterns


def _tables(blocks: object) -> list[dict[str, Any]]:
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
            flat[name] = _text(name, value)
    return flat


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ",".join(value)
    raise ConfigError(f"{name} must be a text, a number, true, false or a list of texts.")
