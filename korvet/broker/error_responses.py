"""The answer to a request that met Redis's absence: the API's own shape, a retriable error.

Handlers that can say more (which partition, which topic) do; this is for what gets past them. Every
thing that was asked for is answered, by its own name, with the error: a client takes what is not
mentioned for done.
"""

from collections.abc import Iterator
from functools import cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec

from korvet.apis import Api
from korvet.errors import ErrorCode
from korvet.store.errors import StoreError, StoreUnavailable
from korvet.wire.schema import ZERO_UUID, Message

AWAY = {
    "Metadata": ErrorCode.LEADER_NOT_AVAILABLE,
    "OffsetFetch": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
"""What clients take for "later", where it is not COORDINATOR_NOT_AVAILABLE: that is no answer to
Metadata, and librdkafka's admin client ends its process over it when it asks for offsets."""
_EMPTY: dict[Any, Any] = {str: "", bytes: b"", bool: False, int: -1, float: -1.0, UUID: ZERO_UUID}
_CODE, _WORDS = "error_code", "error_message"


def error_response(api: Api, request: Message | None, error: StoreError) -> Message:
    """The response of `api` that says so: for the whole, and for each thing asked for."""
    code = ErrorCode.UNKNOWN_SERVER_ERROR
    if isinstance(error, StoreUnavailable):
        code = AWAY.get(api.name, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return refused(api, request, code)


def refused(api: Api, request: Message | None, code: ErrorCode) -> Message:
    """Build the response of `api` that has this error for each thing asked for."""
    response: Message = _answer(api.response, request, code)
    return response


def _answer(kind: Any, asked: object, code: ErrorCode) -> Any:
    """A `kind` about what was asked for: a message, or the element of a list in one."""
    values: dict[str, Any] = {}
    hints = _hints(kind)
    for field in msgspec.structs.fields(kind):
        name, hint = field.name, hints[field.name]
        item = _item(hint)
        if name == _CODE:
            values[name] = code
        elif item is not None and _tells_errors(item):
            values[name] = [_answer(item, one, code) for one in _asked(asked, name)]
        elif _copies(asked, name, hint):
            values[name] = getattr(asked, name)
        elif field.required:
            values[name] = _empty(hint)
    if isinstance(asked, str | int):
        values[_first(kind, type(asked))] = asked
    return kind(**values)


def _asked(source: object, name: str) -> list[Any]:
    """What a request lists where its answer has a list of that name: often under another one."""
    if not isinstance(source, msgspec.Struct):
        return []
    same = getattr(source, name, None)
    if isinstance(same, list):
        return same
    return next((found for found in _lists(source) if found), [])


def _lists(source: msgspec.Struct) -> Iterator[list[Any]]:
    for field in msgspec.structs.fields(source):
        found = getattr(source, field.name)
        if isinstance(found, list):
            yield found


def _copies(source: object, name: str, hint: Any) -> bool:
    """Whether the answer repeats a field of what was asked for."""
    if not isinstance(source, msgspec.Struct) or not isinstance(hint, type):
        return False
    found = getattr(source, name, None)
    return found is not None and isinstance(found, hint)


def _first(kind: Any, scalar: object) -> str:
    """The field that a name or a number asked for goes to."""
    fields = _hints(kind).items()
    return next(name for name, hint in fields if hint is scalar and name not in (_CODE, _WORDS))


@cache
def _tells_errors(kind: Any) -> bool:
    """Whether an element of an answer has an error code, or one within."""
    hints = _hints(kind)
    items = [item for hint in hints.values() if (item := _item(hint)) is not None]
    return _CODE in hints or any(_tells_errors(item) for item in items)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    """The fields' types: without what they are on the wire, and without None."""
    return {name: _bare(hint) for name, hint in get_type_hints(kind).items()}


def _bare(hint: Any) -> Any:
    if get_origin(hint) is Annotated:
        return _bare(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return _bare(next(part for part in get_args(hint) if part is not type(None)))
    return hint


def _item(hint: Any) -> Any:
    """The struct that a list has for elements, or None."""
    if get_origin(hint) is not list:
        return None
    item = _bare(get_args(hint)[0])
    return item if isinstance(item, type) and issubclass(item, msgspec.Struct) else None


def _empty(hint: Any) -> Any:
    """The emptiest value of a field's type: it exists, and says nothing."""
    return [] if get_origin(hint) is list else _EMPTY.get(hint)
