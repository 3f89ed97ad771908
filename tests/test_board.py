"""Check that the Grafana board follows Grafana's schema: existing fields, with their types."""

import copy
import enum
import json
import types
import typing
from collections.abc import Iterator
from typing import Any

import pytest
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard

from tests.test_deploy import BOARD

plugins.register_default_plugins()
NOT_IN_THE_SCHEMA = {"definition"}
"""Fields that Grafana writes itself: the query of a variable as its editor shows it."""


def problems(board: dict[str, Any]) -> list[str]:
    """Return what the schema does not have, or has with another type."""
    model = dashboard.Dashboard.from_json(board)
    written = json.loads(JSONEncoder().encode(model))
    return [*_lost(board, written, ""), *_wrong(model, dashboard.Dashboard, "")]


def _lost(given: Any, written: Any, path: str) -> Iterator[str]:
    """Yield the fields that the schema's types do not hold."""
    if isinstance(given, dict) and isinstance(written, dict):
        for name, value in given.items():
            if name in written:
                yield from _lost(value, written[name], f"{path}/{name}")
            elif value is not None and name not in NOT_IN_THE_SCHEMA:
                yield f"{path}/{name} is unknown"
    elif isinstance(given, list) and isinstance(written, list) and len(given) == len(written):
        for at, (one, other) in enumerate(zip(given, written, strict=True)):
            yield from _lost(one, other, f"{path}/{at}")
    elif given != written:
        yield f"{path} is {given!r}, written as {written!r}"


def _wrong(value: Any, hint: Any, path: str) -> Iterator[str]:
    """Yield the values that are not of their type."""
    kind, parts = typing.get_origin(hint) or hint, typing.get_args(hint)
    if kind in (typing.Union, types.UnionType):
        found = [list(_wrong(value, part, path)) for part in parts]
        if all(found):
            yield min(found, key=len)[0]
    elif kind is typing.Literal or (isinstance(kind, type) and issubclass(kind, enum.Enum)):
        if value not in (parts or [each.value for each in kind]):
            yield f"{path} is {value!r}, which is none of its values"
    elif isinstance(kind, type):
        accepted = (int, float) if kind is float else kind
        if not isinstance(value, accepted) or (isinstance(value, bool) and kind in (int, float)):
            yield f"{path} is {value!r}, not of type {hint}"
        else:
            yield from _wrong_parts(value, parts, path)


def _wrong_parts(value: Any, parts: tuple[Any, ...], path: str) -> Iterator[str]:
    """Yield the values in a list, a map or an object of the schema that are not of their type."""
    if isinstance(value, list):
        rows = [(at, each, parts[0]) for at, each in enumerate(value)] if parts else []
    elif isinstance(value, dict):
        rows = [(name, each, parts[1]) for name, each in value.items()] if parts else []
    elif hasattr(value, "from_json"):
        hints = typing.get_type_hints(type(value).__init__)
        rows = [(name, each, hints.get(name, object)) for name, each in vars(value).items()]
    else:
        rows = []
    for name, each, hint in rows:
        yield from _wrong(each, hint, f"{path}/{name}")


def test_the_board_has_the_fields_and_types_of_grafanas_schema() -> None:
    assert problems(BOARD) == []


def changed(path: str, value: Any) -> dict[str, Any]:
    """Return a board with another value."""
    found = copy.deepcopy(BOARD)
    *folders, name = path.split("/")
    place: Any = found
    for folder in folders:
        place = place[int(folder) if folder.isdigit() else folder]
    place[name] = value
    return found


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("panels/1/titel", "Brokers"),
        ("panels/1/gridPos/h", "4"),
        ("panels/1/targets/0/experience", "up"),
        ("panels/1/fieldConfig/defaults/units", "short"),
        ("templating/list/1/multi", "no"),
        ("refresh", 5),
    ],
)
def test_a_wrong_field_or_type_is_found(path: str, value: Any) -> None:
    assert problems(changed(path, value))
