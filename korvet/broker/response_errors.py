"""The first error that an answer tells, by which requests are counted.

Rules
- Most answers have codes in their rows alone: of topics, of partitions, of groups. The first that
  is none counts, in the order of the answer, its own before those of its rows.
- So many rows are looked at and no more: what nobody asked for may not take long.
"""

from collections.abc import Iterator
from functools import cache
from itertools import islice
from typing import Any, TypeAlias

from korvet.wire.layout import Layout
from korvet.wire.schema import Message, layout_of

MOST_ROWS = 1000
CODES = ("error_code", "partition_error_code")

Places: TypeAlias = "tuple[str, tuple[tuple[str, Places], ...]]"
"""What a struct calls its own code, empty where it has none, and its lists of structs with some."""


def first_error(response: Message, version: int) -> int:
    """The code of the first error in the answer, 0 where it tells of none."""
    own, rows = _places(type(response), version)
    code: int = getattr(response, own) if own else 0
    if code or not rows:
        return code
    return next(filter(None, islice(_codes(response, rows), MOST_ROWS)), 0)


def _codes(message: Any, rows: "tuple[tuple[str, Places], ...]") -> Iterator[int]:
    for name, (own, inner) in rows:
        for row in getattr(message, name) or ():
            if own:
                yield getattr(row, own)
            if inner:
                yield from _codes(row, inner)


@cache
def _places(kind: type[Message], version: int) -> Places:
    return _of(layout_of(kind, version))


def _of(layout: Layout) -> Places:
    found = []
    for slot in (*layout.plain, *layout.tagged):
        if slot.item is not None and slot.item.body is not None:
            places = _of(slot.item.body)
            if places != ("", ()):
                found.append((slot.name, places))
    return next((slot.name for slot in layout.plain if slot.name in CODES), ""), tuple(found)
