"""A call of each script, with example arguments."""

import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from korvet.groups.heartbeat_batcher import heartbeats_of
from korvet.scripts.append_call import append_many
from korvet.scripts.call import Call
from korvet.scripts.calls.group import GroupCalls
from korvet.scripts.calls.namespace import NamespaceCalls
from korvet.scripts.calls.partition import PartitionCalls
from korvet.scripts.calls.transaction import TransactionCalls
from korvet.scripts.keys import Keys

KEYS = Keys()
RECEIVERS: dict[type, object] = {
    NamespaceCalls: KEYS,
    PartitionCalls: KEYS.partition("t", 0, "1" * 32),
    GroupCalls: KEYS.group("g"),
    TransactionCalls: KEYS.transaction("x"),
}
OF_SEVERAL: dict[str, Callable[..., Call[Any]]] = {
    "group_heartbeat": lambda **_: heartbeats_of(KEYS, [("g", "m", "", 1), ("g", "n", "", 1)]),
    "log_append_many": lambda **_: append_many(KEYS, [("t", 0, "", 0, [[1, 2, 3]])]),
    "topic_add_partitions": lambda key_rows, **words: KEYS.topic_add_partitions(
        KEYS.logs("t", range(1, 3)), **words
    ),
    "topic_create": lambda key_rows, **words: KEYS.topic_create(KEYS.logs("t", range(2)), **words),
    "topic_delete": lambda parts, fields, **words: KEYS.topic_delete(
        *KEYS.topic_parts("t", 1, ["g"]), **words
    ),
}
"""The calls on several partitions or groups."""


@cache
def sample_calls() -> list[Call[Any]]:
    """Return a call of each script."""
    return [
        _sample(receiver, name)
        for kind, receiver in RECEIVERS.items()
        for name, method in vars(kind).items()
        if inspect.isfunction(method)
    ]


def _sample(receiver: Any, name: str) -> Call[Any]:
    method = getattr(receiver, name)
    hints = typing.get_type_hints(method)
    words = {word: example(hints[word]) for word in inspect.signature(method).parameters}
    words |= {
        key: getattr(KEYS, key)("x") for key in {"lag_history", "quota", "writer"} & set(words)
    }
    made: Call[Any] = OF_SEVERAL.get(name, method)(**words)
    return made


def example(annotation: Any) -> Any:
    """Return an example value of the type."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return example(arguments[0])
    if origin in (Sequence, Iterable):
        return [example(arguments[0])] * 2
    if origin is tuple:
        return tuple(map(example, arguments))
    plain: Mapping[type, Any] = {int: 1, str: "x", bytes: b"x"}
    return plain[annotation]
