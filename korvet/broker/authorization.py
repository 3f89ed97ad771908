"""Check the needs of a request before its handler runs.

Rules
- A denied request, or a denied row of one, is answered here with its authorization error. The
  handler gets the allowed rows only; if there is none, it does not run.
- An id of a topic is resolved first. An id that no topic has goes to the handler, which answers
  UNKNOWN_TOPIC_ID: an id names nothing.
- If the rules cannot be read, the request is answered as when Redis is unavailable. A Metadata
  request closes its connection instead: a response without topics would look as if they were
  deleted.
"""

from collections.abc import Awaitable
from typing import Any
from uuid import UUID

import msgspec

from korvet.apis import Api
from korvet.base.deferred import CloseWithoutResponse
from korvet.base.errors import ErrorCode
from korvet.broker.acl_table import ERROR_OF, NEEDS, TOPIC, EachConfig, EachRow, Whole
from korvet.broker.error_responses import has_response, refused
from korvet.context import Context
from korvet.security.acl import CLUSTER_NAME, Operation, ResourceType
from korvet.security.authorizer import RulesUnreadable
from korvet.wire.schema import ZERO_UUID, Message

Rows = EachRow | EachConfig
_NAMES = ("topic", "topic_name", "name")
"""Fields with the name of a row's topic."""
WAITING = ("JoinGroup", "SyncGroup")
"""APIs whose response may wait for other members; Fetch and ShareFetch ask for each topic."""
Denied = list[tuple[Any, ErrorCode]]
"""Denied rows of a request with their errors."""


def handle(api: Api, request: Any, context: Context) -> Awaitable[Message | None]:
    """Call the handler with the allowed rows; return the response to await."""
    if not context.services.authorizer.enabled:
        return api.handler(request, context)
    try:
        error = _deny_whole(api, request, context)
        if error is not None:
            return error
        rows = next((need for need in NEEDS[api.name] if isinstance(need, Rows)), None)
        if rows is None:
            if api.name == "Metadata" and not context.services.authorizer.readable:
                raise RulesUnreadable  # the response would list no topics
            answer = api.handler(request, context)
            return _asking_again(api, request, context, answer) if api.name in WAITING else answer
        unresolved = _unresolved(rows, request, context)
        if unresolved:
            return _resolve_first(api, rows, request, unresolved, context)
        return _handle_rows(api, rows, request, {}, context)
    except RulesUnreadable as error:
        return _unreadable(request, error)


async def _unreadable(request: Any, error: RulesUnreadable) -> Message | None:
    if type(request).__name__ == "MetadataRequest" or not has_response(request):
        raise CloseWithoutResponse(str(error))
    raise error


async def _asking_again(
    api: Api, request: Any, context: Context, answer: Awaitable[Message | None]
) -> Message | None:
    """Return the response, unless the client's right was taken while it waited."""
    authorizer = context.services.authorizer
    decisions = authorizer.decisions
    response = await answer
    if authorizer.decisions is not decisions:
        denied = _deny_whole(api, request, context)
        if denied is not None:
            return await denied
    return response


# The whole request.


def _deny_whole(api: Api, request: Any, context: Context) -> Awaitable[Message | None] | None:
    """Return the response if the request is denied as a whole."""
    for need in NEEDS[api.name]:
        if not isinstance(need, Whole) or not need.when(request):
            continue
        if not all(_may(need, name, context) for name in need.names(request)):
            return _denied(api, None if need.top_only else need.repeated(request), need.error)
    return None


def _may(need: Whole, name: str, context: Context) -> bool:
    *others, last = need.operations
    if any(context.allows(one, need.resource, name, audit=False) for one in others):
        return True
    if need.on_any_topic and context.allows_on_any(Operation.WRITE, TOPIC):
        return True
    return context.allows(last, need.resource, name)


async def _denied(api: Api, request: Message | None, error: ErrorCode) -> Message | None:
    if not has_response(request):
        raise CloseWithoutResponse(f"request with acks=0 denied: {error.name}")
    return refused(api, request, error)


# The rows of a request.


def _unresolved(rows: Rows, request: Any, context: Context) -> list[UUID]:
    """Return the ids of topics whose names must be looked up in Redis."""
    if isinstance(rows, EachConfig) or rows.resource != TOPIC:
        return []
    topics = context.topics
    return [
        topic_id
        for row in getattr(request, rows.field)
        if (topic_id := getattr(row, "topic_id", ZERO_UUID)) != ZERO_UUID
        and topics.peek_id(topic_id) is None
    ]


async def _resolve_first(
    api: Api, rows: Rows, request: Any, unresolved: list[UUID], context: Context
) -> Message | None:
    names: dict[UUID, str | None] = {}
    for topic_id in unresolved:
        topic = await context.topics.get_id(topic_id)
        names[topic_id] = None if topic is None else topic.name
    return await _handle_rows(api, rows, request, names, context)


def _handle_rows(
    api: Api, rows: Rows, request: Any, names: dict[UUID, str | None], context: Context
) -> Awaitable[Message | None]:
    allowed, denied = [], []
    for row in getattr(request, rows.field):
        error = _error_of(rows, row, names, context)
        if error is None:
            allowed.append(row)
        else:
            denied.append((row, error))
    if not denied:
        return api.handler(request, context)
    return _handle_some(api, rows.field, request, allowed, denied, context)


def _error_of(
    rows: Rows, row: Any, names: dict[UUID, str | None], context: Context
) -> ErrorCode | None:
    """Return the error of a row that the client may not use, None if it may."""
    if isinstance(rows, EachConfig):
        kind, name = rows.resource_of(row)
        return None if context.allows(rows.operation, kind, name) else ERROR_OF[kind]
    name_of = _topic_name(row, names, context) if rows.resource == TOPIC else row
    if name_of is None:
        return None
    instead = rows.or_cluster
    if instead is not None and context.allows(
        instead, ResourceType.CLUSTER, CLUSTER_NAME, audit=False
    ):
        return None
    if context.allows(rows.operation, rows.resource, name_of):
        return None
    return ERROR_OF[rows.resource]


def _topic_name(row: Any, names: dict[UUID, str | None], context: Context) -> str | None:
    """Return the name of a row's topic, None for an id that no topic has."""
    topic_id = getattr(row, "topic_id", ZERO_UUID)
    if topic_id != ZERO_UUID:
        known = context.topics.peek_id(topic_id)
        return known.name if known is not None else names.get(topic_id)
    name: str = next(getattr(row, field) for field in _NAMES if hasattr(row, field))
    return name


async def _handle_some(
    api: Api, field: str, request: Any, allowed: list[Any], denied: Denied, context: Context
) -> Message | None:
    """Handle the allowed rows, and add the errors of the others to the response."""
    if not has_response(request):
        if allowed:
            await api.handler(msgspec.structs.replace(request, **{field: allowed}), context)
        raise CloseWithoutResponse(f"a batch sent with acks=0 is denied: {denied[0][1].name}")
    response: Any = None
    if allowed:
        response = await api.handler(msgspec.structs.replace(request, **{field: allowed}), context)
    for error in dict.fromkeys(error for _, error in denied):
        some = [row for row, its in denied if its == error]
        errors = refused(
            api, msgspec.structs.replace(request, **{field: some}), error, top=ErrorCode.NONE
        )
        response = errors if response is None else _merged(response, errors)
    return response  # type: ignore[no-any-return]


def _merged(response: Any, errors: Any) -> Any:
    """Return the response with the rows of both."""
    lists = {
        name: [*of, *more]
        for name in response.__struct_fields__
        if isinstance(of := getattr(response, name), list)
        and isinstance(more := getattr(errors, name), list)
    }
    return msgspec.structs.replace(response, **lists)
