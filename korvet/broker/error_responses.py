"""The errors of responses: build a response that has one, and find the first one of a response.

A response is built here if a handler does not return errors itself, as when Redis is unavailable.
It lists each item of the request with the error: a client treats an item without a response as
done.

Requests are counted by the first error code of their response. Most responses have error codes only
in rows: of topics, partitions or groups. The first code other than NONE counts, in the order of the
response; a struct's own code comes before its rows. At most MOST_ROWS rows are checked, so that a
large response is not delayed.
"""

from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from types import UnionType
from typing import Annotated, Any, TypeAlias, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec
from msgspec.structs import replace

from korvet.apis import Api
from korvet.base.errors import ErrorCode
from korvet.store.errors import LimitReached, StoreError, StoreUnavailable
from korvet.wire.layout import Layout
from korvet.wire.schema import ZERO_UUID, Message, layout_of

UNAVAILABLE = {
    "Metadata": ErrorCode.LEADER_NOT_AVAILABLE,
    "OffsetFetch": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
"""Retriable errors where COORDINATOR_NOT_AVAILABLE does not work.

It is not valid for Metadata, and librdkafka's admin client aborts the process if OffsetFetch
returns it.
"""
_EMPTY: dict[Any, Any] = {str: "", bytes: b"", bool: False, int: -1, float: -1.0, UUID: ZERO_UUID}
_RENAMED = {"partition_index": "partition", "topic_name": "name", "user": "name"}
"""Fields of responses whose name in the request may differ."""
_ROWS: dict[str, Callable[[Any], list[Any]]] = {
    "AlterReplicaLogDirsRequest": lambda asked: [row for each in asked.dirs for row in each.topics],
    "AlterUserScramCredentialsRequest": lambda asked: [*asked.deletions, *asked.upsertions],
}
"""The items of requests that have them in several lists."""
_LISTS = {
    "results_by_transaction": "transactions",
    "results_by_topic_v3_and_below": "v3_and_below_topics",
}
"""The lists of requests that differ by version, by the response's."""
_CODE, _WORDS = "error_code", "error_message"
_CODES = (_CODE, "partition_error_code")


def has_response(request: Any) -> bool:
    """Return whether the client gets a response: not to a Produce with acks=0."""
    return getattr(request, "acks", 1) != 0


def error_response(api: Api, request: Message | None, error: StoreError) -> Message:
    """Build the response of `api` for a failed call: an error for each item of the request."""
    code = ErrorCode.UNKNOWN_SERVER_ERROR
    if isinstance(error, StoreUnavailable):
        code = UNAVAILABLE.get(api.name, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if isinstance(error, LimitReached):
        code = ErrorCode(error.code)
    return refused(api, request, code)


def refused(
    api: Api, request: Message | None, code: ErrorCode, *, top: ErrorCode | None = None
) -> Message:
    """Build the response of `api` that has this error for each item of the request.

    `top` is the response's own error code, `code` by default.
    """
    response: Message = _answer(api.response, request, code)
    if top is not None and hasattr(response, _CODE):
        response = replace(response, **{_CODE: top})
    return response


def _answer(kind: Any, asked: object, code: ErrorCode) -> Any:
    """Build a `kind` for a request or an item of one: a response, or an element of a list in it."""
    values: dict[str, Any] = {}
    hints = _hints(kind)
    for field in msgspec.structs.fields(kind):
        name, hint = field.name, hints[field.name]
        source = name if hasattr(asked, name) else _RENAMED.get(name, name)
        item = _item(hint)
        if name in _CODES:
            values[name] = code
        elif item is not None and _has_error_field(item):
            values[name] = [_answer(item, one, code) for one in _asked(asked, name)]
        elif item is not None and (same := _same_items(asked, name, item)):
            values[name] = same
        elif _copies(asked, source, hint):
            values[name] = getattr(asked, source)
        elif field.required:
            values[name] = _empty(hint)
    if isinstance(asked, str | int):
        values[_first(kind, type(asked))] = asked
    return kind(**values)


def _asked(source: object, name: str) -> list[Any]:
    """Return the request's list that corresponds to a list of the response.

    Its name often differs: then it is the first non-empty list.
    """
    if not isinstance(source, msgspec.Struct):
        return []
    rows = _ROWS.get(type(source).__name__)
    if rows is not None:
        return rows(source)
    same = getattr(source, _LISTS.get(name, name), None)
    if isinstance(same, list):
        return same
    values = (getattr(source, field) for field in source.__struct_fields__)
    return next((found for found in values if isinstance(found, list) and found), [])


def _same_items(source: object, name: str, item: Any) -> list[Any]:
    """Return the request's list of that name if its elements are the response's too."""
    found = getattr(source, name, None)
    return found if isinstance(found, list) and all(isinstance(one, item) for one in found) else []


def _copies(source: object, name: str, hint: Any) -> bool:
    """Return whether the response repeats a field of the request."""
    if not isinstance(source, msgspec.Struct) or not isinstance(hint, type):
        return False
    found = getattr(source, name, None)
    return found is not None and isinstance(found, hint)


def _first(kind: Any, scalar: object) -> str:
    """Return the field for an item that is a plain name or number."""
    fields = _hints(kind).items()
    return next(name for name, hint in fields if hint is scalar and name not in (*_CODES, _WORDS))


@cache
def _has_error_field(kind: Any) -> bool:
    """Return whether a list element has an error code, itself or in a list of its elements."""
    hints = _hints(kind)
    items = [item for hint in hints.values() if (item := _item(hint)) is not None]
    return any(code in hints for code in _CODES) or any(_has_error_field(item) for item in items)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    """Return the fields' types, without wire annotations and None."""
    return {name: _bare(hint) for name, hint in get_type_hints(kind).items()}


def _bare(hint: Any) -> Any:
    if get_origin(hint) is Annotated:
        return _bare(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return _bare(next(part for part in get_args(hint) if part is not type(None)))
    return hint


def _item(hint: Any) -> Any:
    """Return the struct type of a list's elements, or None."""
    if get_origin(hint) is not list:
        return None
    item = _bare(get_args(hint)[0])
    return item if isinstance(item, type) and issubclass(item, msgspec.Struct) else None


def _empty(hint: Any) -> Any:
    """Return the empty value of a field's type."""
    return [] if get_origin(hint) is list else _EMPTY.get(hint)


MOST_ROWS = 1000

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
    return next((slot.name for slot in layout.plain if slot.name in _CODES), ""), tuple(found)
