"""Check against the code that each setting declares whether it has an effect.

A setting has one if code outside the tables reads it by name. So has one that gives the default or
a bound of a config with an effect. A topic config that is a field of TopicPolicy has one if code
reads the field. So has a group config that is a field of the configs of a type of group.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec
import pytest

import korvet
from korvet.config.broker_settings import BROKER
from korvet.config.group_settings import FROM_BROKER as OF_GROUPS
from korvet.config.group_settings import GROUP, bound
from korvet.config.setting import PemType, Setting
from korvet.config.topic_policy import TopicPolicy
from korvet.config.topic_settings import FROM_BROKER as OF_TOPICS
from korvet.config.topic_settings import TOPIC
from korvet.groups.share_group import ShareGroupConfig
from korvet.groups.streams_group import StreamsGroupConfig
from tests.support.syntax_nodes import nodes

PACKAGE = Path(korvet.__file__).parent
TABLES = {"broker_settings.py", "topic_settings.py", "group_settings.py"}
POLICIES = {"topic_policy.py", "share_group.py"}
"""Modules whose policies read their own fields."""
POLICY = {field.encode_name: field.name for field in msgspec.structs.fields(TopicPolicy)}
"""Topic configs that are fields of a topic's policy."""
OF_MEMBERS = {
    field.encode_name: field.name
    for kind in (ShareGroupConfig, StreamsGroupConfig)
    for field in msgspec.structs.fields(kind)
}
"""Group configs that are fields of the configs of share and streams groups."""


def read_in(path: Path) -> Iterator[str]:
    """Yield the texts that code of a module may read a setting by, and the fields of policies.

    The values of dicts and keywords are settings to write, or names to show.
    """
    for parent in nodes(ast.parse(path.read_text())):
        for node in ast.iter_child_nodes(parent):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                if not isinstance(parent, ast.Dict | ast.keyword):
                    yield node.value
            elif isinstance(node, ast.Attribute):
                owner = getattr(node.value, "attr", getattr(node.value, "id", ""))
                if owner in ("policy", "config") or path.name in POLICIES:
                    yield f".{node.attr}"


@cache
def code() -> frozenset[str]:
    """Return what is read outside the tables and the test support."""
    paths = (path for path in PACKAGE.rglob("*.py") if path.name not in TABLES)
    return frozenset(
        text for path in paths if "testing" not in path.parts for text in read_in(path)
    )


def is_topic_config_read(name: str, code: frozenset[str]) -> bool:
    return (f".{POLICY[name]}" if name in POLICY else name) in code


def is_group_config_read(name: str, code: frozenset[str]) -> bool:
    return (f".{OF_MEMBERS[name]}" if name in OF_MEMBERS else name) in code


def is_broker_setting_read(name: str, code: frozenset[str]) -> bool:
    topics = [own for own, rows in OF_TOPICS.items() if name in {row.name for row in rows}]
    groups = [own for own, broker in OF_GROUPS.items() if broker == name]
    groups += [own for own in GROUP if name in (bound(own, "min"), bound(own, "max"))]
    return (
        (name in code and name not in topics)
        or any(is_topic_config_read(own, code) for own in topics)
        or any(is_group_config_read(own, code) for own in groups)
    )


CHECKS = [
    pytest.param(is_read, setting, id=f"{kind}-{setting.name}")
    for kind, table, is_read in (
        ("broker", BROKER, is_broker_setting_read),
        ("topic", TOPIC, is_topic_config_read),
        ("group", GROUP, is_group_config_read),
    )
    for setting in table.values()
    # A type of PEM only is complete when the value is checked.
    if not isinstance(setting.type, PemType)
]


@pytest.mark.parametrize(("is_read", "setting"), CHECKS)
def test_a_setting_is_read_exactly_when_it_says_so(is_read: object, setting: Setting) -> None:
    assert callable(is_read)
    assert is_read(setting.name, code()) == setting.effect
    assert not is_read(setting.name, frozenset()), "the check cannot fail"
