"""Generate the options, settings and metrics of the reference pages."""

import textwrap
from collections.abc import Iterable, Iterator

from korvet.base.metrics import Metrics
from korvet.config.broker_config import OPTIONS, Config
from korvet.config.broker_settings import BROKER
from korvet.config.group_settings import GROUP
from korvet.config.setting import Setting, type_of
from korvet.config.topic_settings import FROM_BROKER, TOPIC

WIDTH = 100


_DEFAULTS = {"listen": Config().listeners[0].address}
"""Defaults of options that are not a field of Config."""


def options() -> str:
    """Return the start options as a table."""
    rows = ["| Option | Default | Meaning |", "|---|---|---|"]
    defaults = Config()
    for name, sentence in OPTIONS.items():
        value = _DEFAULTS.get(name, getattr(defaults, name.replace("-", "_"), None))
        rows.append(f"| `--{name}` | {code(None if value is None else str(value))} | {sentence} |")
    return "\n".join(rows) + "\n"


def settings() -> str:
    """Return the broker settings that have an effect, one section each."""
    return "\n".join(_section(row, _changes(row)) for row in BROKER.values() if row.effect)


def topic_configs() -> str:
    """Return the topic configs that have an effect, with the settings of their defaults."""
    return "\n".join(_section(row, _default_from(row.name)) for row in TOPIC.values() if row.effect)


def group_configs() -> str:
    """Return the group configs, one section each."""
    return "\n".join(_section(row, "") for row in GROUP.values() if row.effect)


def accepted_settings() -> str:
    """Return the names of broker settings and topic configs without an effect."""
    return "\n".join(
        [
            "Broker settings:",
            "",
            _names(BROKER.values()),
            "",
            "Topic configs:",
            "",
            _names(TOPIC.values()),
            "",
        ]
    )


def metrics() -> str:
    """Return the metrics as a table, under the names that Prometheus sees."""
    rows = ["| Metric | Kind | Labels | Meaning |", "|---|---|---|---|"]
    for family in Metrics().snapshot():
        name = f"{family.name}_total" if family.kind == "counter" else family.name
        labels = ", ".join(family.labels)
        rows.append(f"| `{name}` | {family.kind} | {labels} | {family.sentence} |")
    return "\n".join(rows) + "\n"


def code(text: str | None) -> str:
    """Return a value in Markdown's code style; empty for an unset value."""
    return "" if text is None else f"`{text}`"


def _section(setting: Setting, facts: str) -> str:
    fixed = "Fixed when the topic is created." if setting.immutable else ""
    default = "Unset by default." if setting.default is None else f"Default: {_value(setting)}."
    line = " ".join(filter(None, (f"Type: {type_of(setting, code)}.", default, facts, fixed)))
    text = [f"### `{setting.name}`", "", *wrapped(setting.sentence), "", *wrapped(line), ""]
    return "\n".join(text)


def _value(setting: Setting) -> str:
    return code(setting.default) if setting.default else "empty"


def _changes(setting: Setting) -> str:
    return "Changes while brokers run." if setting.dynamic else "Read at start."


def _default_from(name: str) -> str:
    names = [code(row.name) for row in FROM_BROKER[name]]
    if not names:
        return ""
    kind = "setting" if len(names) == 1 else "first that is set of"
    return f"Broker {kind}: {', '.join(names)}."


def wrapped(text: str) -> list[str]:
    """Return a text in lines of at most 100 characters."""
    return textwrap.wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def _names(rows: Iterable[Setting]) -> str:
    return "\n".join(_quoted(row for row in rows if not row.effect))


def _quoted(rows: Iterable[Setting]) -> Iterator[str]:
    yield from wrapped(", ".join(code(row.name) for row in rows) + ".")
