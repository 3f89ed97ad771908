"""All messages in all versions, and random values of them generated from the layouts."""

import pkgutil
from functools import cache
from importlib import import_module
from random import Random
from typing import Any
from uuid import UUID

import korvet.wire.messages
from korvet.base.errors import ErrorCode
from korvet.wire.layout import Layout, Message, Slot
from korvet.wire.schema import layout_of, messages

for _module in pkgutil.iter_modules(korvet.wire.messages.__path__):
    import_module(f"korvet.wire.messages.{_module.name}")

_layout_of = cache(layout_of)

CLASSES = [cls for cls in messages() if cls.__module__.startswith("korvet.")]
CASES = [
    (cls, version)
    for cls in CLASSES
    for version in range(cls.__message__.versions[0], cls.__message__.versions[1] + 1)
]


def case_id(value: object) -> str:
    return value.__name__ if isinstance(value, type) else f"v{value}"


_BITS = {"i8": 7, "i16": 15, "i32": 31, "i64": 63}
_TEXTS = ("", "a", "orders", "ключ", "x" * 126, "x" * 127, "y" * 300)


def a_message(cls: type[Message], version: int, random: Random, *, mild: bool = False) -> Any:
    """Generate a value of `cls` valid in `version`; `mild` limits numbers to realistic ranges."""
    return _struct(_layout_of(cls, version), random, mild)


def _struct(layout: Layout, random: Random, mild: bool) -> Message:
    values = {slot.name: _value(slot, random, mild) for slot in layout.plain}
    for slot in layout.tagged:
        if random.random() < 0.6:
            values[slot.name] = _value(slot, random, mild)
    return layout.cls(**values)


def _value(slot: Slot, random: Random, mild: bool) -> Any:
    if slot.nullable and random.random() < 0.25:
        return None
    if slot.kind == "list" and slot.item is not None:
        size = random.choice((0, 1, 1, 2, 3))
        return [_value(slot.item, random, mild) for _ in range(size)]
    if slot.kind == "struct" and slot.body is not None:
        return _struct(slot.body, random, mild)
    return _scalar(slot, random, mild)


def _scalar(slot: Slot, random: Random, mild: bool) -> Any:
    if slot.kind in _BITS:
        return _integer(slot, random, mild)
    if slot.kind == "str":
        return random.choice(_TEXTS)
    if slot.kind in ("bytes", "records"):
        return random.randbytes(random.choice((0, 1, 5, 126, 127, 128, 20_000)))
    if slot.kind == "uuid":
        return UUID(int=random.getrandbits(128))
    if slot.kind == "bool":
        return random.random() < 0.5
    if slot.kind == "f64":
        return random.uniform(-1e9, 1e9)
    if slot.kind == "u16":
        return random.getrandbits(16)
    raise AssertionError(f"{slot.name}: no values for {slot.kind}")


def _integer(slot: Slot, random: Random, mild: bool) -> int:
    bits = _BITS[slot.kind]
    if mild and slot.name.endswith("error_code"):
        return random.choice(list(ErrorCode)).value
    if mild:
        return random.getrandbits(min(bits, 40))
    return random.choice((0, 1, -1, -(1 << bits), (1 << bits) - 1, random.getrandbits(bits)))
