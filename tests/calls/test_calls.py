"""Check that generated calls equal those of the functions that were written by hand."""

import importlib
import inspect
import types
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import korvet.calls
from korvet.keys import Keys
from korvet.scripts import generate
from korvet.scripts.call import Arg, Call, Script

FAMILIES = "acl broker config group log producer quota schedule share topic transaction user writer"
KEYS = Keys()
BY_HAND = {
    "group.commit",
    "group.heartbeat",
    "group.txn_commit",
    "log.append_many",
    "log.clean_copy",
    "log.delete",
    "log.expire_producers",
    "log.load",
    "topic.add_partitions",
    "topic.create",
    "topic.delete",
}
"""Functions that make rows or keys of other arguments: no header says how."""


def written() -> Iterator[tuple[str, Callable[..., Call[Any]]]]:
    for family in FAMILIES.split():
        module = importlib.import_module(f"korvet.scripts.{family}")
        for name, script in vars(module).items():
            if isinstance(script, Script) and script.name not in BY_HAND:
                function = "list_scheduled" if script.name == "schedule.list" else name.lower()
                yield script.name, getattr(module, function)


def words(function: Callable[..., object]) -> dict[str, Any]:
    """Return the hints of the parameters, with those of an unpacked TypedDict."""
    hints = typing.get_type_hints(function)
    del hints["return"]
    (packed,) = [hints.pop(name) for name in ("args",) if name in hints] or [None]
    return hints | (typing.get_type_hints(typing.get_args(packed)[0]) if packed else {})


def sample(hint: Any, name: str) -> Any:
    if hint == Arg or (typing.get_origin(hint) is None and hint not in (int, str, bytes)):
        return name.encode()
    if typing.get_origin(hint) is types.UnionType and int in typing.get_args(hint):
        return name.encode()
    if typing.get_origin(hint) is types.UnionType or "Sequence" in str(hint) or "Iter" in str(hint):
        hint = typing.get_args(hint)[0] if typing.get_origin(hint) is types.UnionType else hint
        (element,) = typing.get_args(hint)
        return [sample(element, f"{name}{n}") for n in range(2)]
    if typing.get_origin(hint) is tuple:
        return tuple(sample(each, f"{name}{n}") for n, each in enumerate(typing.get_args(hint)))
    if hint is int:
        return sum(map(ord, name))
    return f"{name}:%é".encode() if hint is bytes else f"{name}:%é"


@pytest.mark.parametrize(("name", "by_hand"), list(written()))
def test_a_generated_call_equals_the_written_one(name: str, by_hand: Callable[..., Any]) -> None:
    given = {word: sample(hint, word) for word, hint in words(by_hand).items() if word != "keys"}
    expected = by_hand(KEYS, **given)
    family, short = name.split(".")
    receiver: Any = KEYS
    if "topic" in given and "partition" in given:
        place = given.pop("topic"), given.pop("partition")
        receiver = KEYS.partition(*place, given.pop("topic_id", ""))
    elif "group_id" in given:
        receiver = KEYS.group(given.pop("group_id"))
    elif "transactional_id" in given:
        receiver = KEYS.transaction(given.pop("transactional_id"))
    for word, key in (("writer_id", "writer"), ("bucket", "quota"), ("shard", "lag_history")):
        if word in given:
            given[key] = getattr(KEYS, key)(given.pop(word))
    method = getattr(receiver, f"{family}_{short}", None) or getattr(receiver, short)
    taken = inspect.signature(method).parameters
    rows = [given.pop(word) for word in list(given) if word not in taken]
    made = method(*rows, **given)
    assert made.script.name == expected.script.name
    assert made.script.reply.__struct_fields__ == expected.script.reply.__struct_fields__
    assert (made.keys, list(made.args)) == (expected.keys, list(expected.args))


def test_the_committed_modules_are_the_generated_ones() -> None:
    assert generate.stale(Path(korvet.calls.__path__[0])) == []
