"""Find the first error code of a response, by which requests are counted.

Rules
- Most responses have error codes only in rows: of topics, partitions or groups. The first code
  other than NONE counts, in the order of the response; a struct's own code comes before its rows.
- At most MOST_ROWS rows are checked, so that a large response is not delayed.
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
"""A struct's error code field ("" if none), and its lists of structs that have one."""


def first_error(response: Message, version: int) -> int:
    """Return the first error code of the response, or 0."""
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
