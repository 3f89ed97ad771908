"""The file of `korvet apply`: topics, rules, quotas and users in YAML or JSON.

Rules
- A key that is unknown, or given twice, is refused with its line: a typing error must not be a
  topic without its config.
- Values of configs are taken as they are written: `true`, `7d` and `0644` are texts.
- JSON is YAML, apart from tabs between its values.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import typer
import yaml

from korvet.cli.acls import Rules
from korvet.cli.quotas import Entity, number
from korvet.config.setting import StartError, in_milliseconds
from korvet.security.acl import Rule
from korvet.security.quotas import CONNECTIONS, ENTITY_TYPES, OF_CLIENTS

SECTIONS = ("topics", "acls", "quotas", "users")
_RULE = (
    "principal", "operation", "topic", "group", "transactional-id", "cluster", "prefixed", "host",
    "deny",
)  # fmt: skip
_LISTS = ("principal", "operation", "topic", "group", "transactional-id")
_FLAGS = ("cluster", "prefixed", "deny")


class Topic(NamedTuple):
    """A topic: without partitions it has as many as num.partitions says, or as it has."""

    partitions: int | None
    replicas: int
    """For brokers of Kafka, when the topic is created; -1: their default."""
    configs: Mapping[str, str]


Parts = frozenset[tuple[str, str | None]]
"""Types and names of an entity of quotas; None is the default."""


class Wanted(NamedTuple):
    """The sections of a file. One that it has not is None: what there is stays."""

    topics: Mapping[str, Topic] | None
    acls: Sequence[Rule] | None
    quotas: Mapping[Parts, Mapping[str, float]] | None
    users: Sequence[str] | None


def read(path: Path) -> Wanted:
    """Read a file. Raises StartError with the line of what is wrong."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise StartError(f"{path} cannot be read: {error}.") from None
    if text.lstrip()[:1] in ("{", "["):
        try:
            json.loads(text)
        except ValueError as error:
            raise StartError(f"{path} is no JSON: {error}.") from None
        text = text.replace("\t", " ")
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError) as error:
        raise StartError(f"{path} is no YAML: {error}.") from None
    if root is None:
        raise StartError(f"{path} is empty: it has {', '.join(SECTIONS)}.")
    given = _Value(path, root).fields(SECTIONS)

    def section(name: str, parse: Callable[[_Value], Any]) -> Any:
        return None if name not in given else parse(given[name])

    return Wanted(
        section("topics", lambda value: {key: _topic(row) for key, row in value.fields().items()}),
        section("acls", lambda value: [rule for row in value.rows() for rule in _rules(row)]),
        section("quotas", _quotas),
        section("users", lambda value: [row.text() for row in value.rows()]),
    )


def _topic(value: "_Value") -> Topic:
    given = {} if value.is_empty else value.fields(("partitions", "replicas", "configs"))
    configs = given["configs"].fields() if "configs" in given else {}
    return Topic(
        given["partitions"].number() if "partitions" in given else None,
        given["replicas"].number() if "replicas" in given else -1,
        {name: in_milliseconds(name, row.text()) for name, row in configs.items()},
    )


def _rules(value: "_Value") -> list[Rule]:
    given = value.fields(_RULE)
    options: dict[str, Any] = {
        name.replace("-", "_"): given[name].texts() for name in _LISTS if name in given
    }
    options |= {name: given[name].flag() for name in _FLAGS if name in given}
    if "host" in given:
        options["host"] = given["host"].text()
    return list(value.explain(Rules(**options).all))


def _quotas(value: "_Value") -> dict[Parts, dict[str, float]]:
    found: dict[Parts, dict[str, float]] = {}
    for row in value.rows():
        given = row.fields((*ENTITY_TYPES, "default", *OF_CLIENTS, CONNECTIONS))
        defaults = given["default"].texts() if "default" in given else []
        names = {
            kind.replace("-", "_"): given[kind].text() for kind in ENTITY_TYPES if kind in given
        }
        entity = Entity(**names, default=defaults)
        parts = frozenset(row.explain(entity.parts).items())
        if not parts:
            raise row.refused(f"a quota is of one of {', '.join(ENTITY_TYPES)}, or default")
        if parts in found:
            raise row.refused("the quotas of this entity are given twice")
        found[parts] = {
            name: each.explain(partial(number, name, each.text()))
            for name, each in given.items()
            if name not in (*ENTITY_TYPES, "default")
        }
    return found


class _Value(NamedTuple):
    """A value of the file, with its line."""

    path: Path
    node: Any

    @property
    def is_empty(self) -> bool:
        """Return whether there is no value."""
        return bool(self.node.tag == "tag:yaml.org,2002:null")

    def refused(self, reason: str) -> StartError:
        """Return the error that names the line."""
        return StartError(f"{self.path}, line {self.node.start_mark.line + 1}: {reason}.")

    def explain(self, work: Callable[[], Any]) -> Any:
        """Return what `work` returns; raises its BadParameter with the line."""
        try:
            return work()
        except typer.BadParameter as error:
            raise self.refused(error.message.rstrip(".")) from None

    def fields(self, known: Sequence[str] | None = None) -> "dict[str, _Value]":
        """Return the values of a mapping by their keys, of which only some may be known."""
        if not isinstance(self.node, yaml.MappingNode):
            raise self.refused(
                f"here are NAME: VALUE, such as {', '.join(known or ('retention.ms',))}"
            )
        found: dict[str, _Value] = {}
        for key, value in self.node.value:
            name = _Value(self.path, key).text()
            if known is not None and name not in known:
                raise _Value(self.path, key).refused(f"{name} is unknown here: {', '.join(known)}")
            if name in found:
                raise _Value(self.path, key).refused(f"{name} is given twice")
            found[name] = _Value(self.path, value)
        return found

    def rows(self) -> "Iterator[_Value]":
        """Yield the values of a list."""
        if self.is_empty:
            return
        if not isinstance(self.node, yaml.SequenceNode):
            raise self.refused("here is a list")
        for node in self.node.value:
            yield _Value(self.path, node)

    def text(self) -> str:
        """Return a text."""
        if not isinstance(self.node, yaml.ScalarNode) or self.is_empty:
            raise self.refused("here is one text or number")
        return str(self.node.value)

    def texts(self) -> list[str]:
        """Return the texts of a list, or the one that is given in place of it."""
        if isinstance(self.node, yaml.SequenceNode):
            return [row.text() for row in self.rows()]
        return [self.text()]

    def number(self) -> int:
        """Return a number from 1 on."""
        text = self.text()
        if not (text.isascii() and text.isdigit() and 0 < int(text) < 1 << 31):
            raise self.refused(f"{text!r} is no number from 1 on")
        return int(text)

    def flag(self) -> bool:
        """Return true or false."""
        text = self.text()
        if text not in ("true", "false"):
            raise self.refused(f"{text!r} is neither true nor false")
        return text == "true"
