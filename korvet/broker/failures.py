"""The answer to a request that met Redis's absence: the API's own shape, a retriable error.

Handlers that can say more (which partition, which topic) do; this is for what gets past them.
"""

from typing import Any

import msgspec

from korvet.apis import Api
from korvet.errors import ErrorCode
from korvet.store.errors import StoreError, StoreUnavailable
from korvet.wire.schema import Message

AWAY = {"Metadata": ErrorCode.LEADER_NOT_AVAILABLE}
"""What clients take for "later" where it is not the coordinator they ask."""


def failure(api: Api, request: Message | None, error: StoreError) -> Message:
    """The response of `api` that says so: for the whole, or for each thing asked for."""
    code = ErrorCode.UNKNOWN_SERVER_ERROR
    if isinstance(error, StoreUnavailable):
        code = AWAY.get(api.name, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    fields = {field.name: field for field in msgspec.structs.fields(api.response)}
    values: dict[str, Any] = {}
    for name, field in fields.items():
        if name == "error_code":
            values[name] = code
        elif field.required:
            values[name] = _empty(field.type)
    values |= _echoed(api, request, code)
    return api.response(**values)


def _empty(kind: Any) -> Any:
    """The emptiest value of a field's type: it exists, and says nothing."""
    info = msgspec.inspect.type_info(kind)
    if isinstance(info, msgspec.inspect.ListType):
        return []
    if isinstance(info, msgspec.inspect.StrType):
        return ""
    if isinstance(info, msgspec.inspect.BytesType):
        return b""
    if isinstance(info, msgspec.inspect.BoolType):
        return False
    if isinstance(info, msgspec.inspect.IntType):
        return -1
    return None


def _echoed(api: Api, request: Message | None, code: ErrorCode) -> dict[str, Any]:
    """Each thing asked for by name is answered by name, with the error."""
    found = {}
    for field in msgspec.structs.fields(api.response):
        info = msgspec.inspect.type_info(field.type)
        if not isinstance(info, msgspec.inspect.ListType):
            continue
        item = info.item_type
        if not isinstance(item, msgspec.inspect.StructType):
            continue
        if {"error_code", "name"} <= {row.name for row in item.fields}:
            found[field.name] = [_item(item, name, code) for name in _names(request)]
    return found


def _item(item: msgspec.inspect.StructType, name: str, code: ErrorCode) -> Any:
    known = {"error_code": code, "name": name}
    values = {
        row.name: known[row.name] if row.name in known else _empty(_python_type(item.cls, row.name))
        for row in item.fields
        if row.required or row.name in known
    }
    return item.cls(**values)


def _python_type(cls: type[Any], name: str) -> Any:
    return next(row.type for row in msgspec.structs.fields(cls) if row.name == name)


def _names(request: Message | None) -> list[str]:
    """The names a request lists, whatever its field is called."""
    found: list[str] = []
    for name in ("topics", "topic_names", "groups_names", "groups"):
        for item in getattr(request, name, None) or []:
            text = item if isinstance(item, str) else getattr(item, "name", None)
            if isinstance(text, str):
                found.append(text)
    return found
