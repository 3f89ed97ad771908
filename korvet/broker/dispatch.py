"""Process a frame: decode the request, call the handler, encode the response.

Rules
- A version of ApiVersions that is not served is answered in version 0 with UNSUPPORTED_VERSION.
- A handler's failure affects one connection: it is logged with its traceback and the connection is
  closed, since the right response is unknown.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import Any

import msgspec

from korvet import apis
from korvet.base import logfmt
from korvet.base.deferred import (
    NOT_READY,
    CloseWithoutResponse,
    Deferred,
    NotReady,
    TimedAwaitable,
)
from korvet.base.errors import ErrorCode
from korvet.broker import authorization
from korvet.broker.error_responses import error_response, first_error
from korvet.broker.network.request_decoder import (
    API_VERSIONS,
    FETCH,
    PRODUCE,
    CloseConnection,
    decode_body,
    decode_header,
    is_served,
)
from korvet.context import Context, Services
from korvet.security.quotas import FETCHES, Limit, within
from korvet.security.session import Session
from korvet.store.errors import LimitReached, StoreError, StoreUnavailable
from korvet.wire.headers import encode_response_header
from korvet.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from korvet.wire.messages.fetch import FetchRequest
from korvet.wire.messages.produce import ProduceRequest
from korvet.wire.records import Buffer
from korvet.wire.schema import Message, encode_parts

USUAL_BATCH = 1 << 20
"""Bytes of a batch that few exceed: the default of max.message.bytes."""
USUAL_RATIO = 16
"""Decompressed bytes that count as one byte for producer_byte_rate: few batches pack better."""
MANY_ROWS = 500
"""Rows of a response above which it is encoded in a thread."""
_encoder = ThreadPoolExecutor(1, "encoder")
"""One thread: several would leave the event loop almost no time with the interpreter lock."""

logger = logfmt.get("broker.dispatch")


class Request(msgspec.Struct):
    """A decoded request with its pending response."""

    api: apis.Api
    version: int
    correlation_id: int
    client_id: str | None
    answer: Awaitable[Message | None]
    body: Message | None
    began: float
    promise: int = 0
    """Max bytes of a response that may be large, 0 for any other."""
    limits: tuple[Limit, ...] = ()
    """Quotas that the client is charged for this request."""
    received: int = 0
    """Bytes of the request, if it has limits."""
    session: Session | None = None
    """The client's session, if the request has limits."""
    slowed: bool = False
    """Whether the client waits because Redis is nearly full."""
    throttle_ms: int = 0
    """Time for which the client's next request waits, once this one is answered."""
    pause_ms: int = 0
    """Time for which the response asks the client to send nothing; what it sends is served."""


def begin(
    frame: Buffer, services: Services, session: Session, release: Callable[[], None]
) -> Request | list[Buffer]:
    """Decode the request and call its handler, or return a response that needs none.

    Raises CloseConnection.
    """
    began = perf_counter()
    header, at = decode_header(frame)
    version = header.api_version
    if header.api_key == API_VERSIONS and not is_served(header):
        return _unsupported(header.correlation_id, services)
    row, body = decode_body(frame, header, at)
    limits = services.quotas.limits(session, header.client_id)
    if limits:
        session.opened_bytes = session.mutation_ms = 0
        if row.key in FETCHES:
            body = within(limits, body)
    slowed = row.key == PRODUCE and services.memory.slows and _is_slowed(body, services)
    # The next request of a limited client waits for the charge of this one.
    released = _no_release if limits or slowed else release
    context = Context(services, row.key, version, header.client_id, session, released)
    pause_ms = services.pause_ms(body, session) if row.key == PRODUCE and services.pause_ms else 0
    answer = services.interceptor.response(row, body) if services.interceptor else None
    if answer is None:
        tracing = services.tracing
        handle = authorization.handle if tracing is None else tracing.handle
        answer = handle(row, body, context)
    promise = _promise(body, services, session) if row.key == FETCH else 0
    if limits or slowed or pause_ms:
        answer = TimedAwaitable(answer, perf_counter() - began)
    return Request(
        row,
        version,
        header.correlation_id,
        header.client_id,
        answer,
        body,
        began,
        promise,
        limits,
        len(frame),
        session if limits else None,
        slowed,
        pause_ms=pause_ms,
    )


def _is_slowed(request: Message, services: Services) -> bool:
    """Return whether one of a Produce's topics holds too much of a nearly full Redis."""
    assert isinstance(request, ProduceRequest)
    table = services.topics
    found = (table.last_known(data.name or None, data.topic_id) for data in request.topic_data)
    return services.memory.slows_any([topic.id for topic in found if topic is not None])


def _no_release() -> None:
    """Keep later requests waiting until this one is answered."""


async def finish(request: Request, services: Services) -> list[Buffer] | None:
    """Return the response as buffers to send, length and header included; None if there is none.

    Raises CloseConnection if the client wants no response and the request failed.
    """
    row = request.api
    try:
        response = await request.answer
    except CloseWithoutResponse as reason:
        raise CloseConnection(
            str(reason), api=row.name, version=request.version, client_id=request.client_id
        ) from None
    except StoreError as error:
        if not isinstance(error, StoreUnavailable):
            event = "request failed in Redis"
            if isinstance(error, LimitReached):
                event = "request refused by a limit"
            logger.error_again(event, api=row.name, error=error)
        response = error_response(row, request.body, error)
    if request.limits or request.slowed or request.pause_ms:
        response = await _throttle(request, response, services)
    parts = None
    if response is not None and _is_long(response):
        loop = asyncio.get_running_loop()
        parts = await loop.run_in_executor(_encoder, encode_parts, response, request.version)
    return _respond(request, response, services, parts)


async def _throttle(
    request: Request, response: Message | None, services: Services
) -> Message | None:
    """Charge the client's quotas and return the response with the time it has to wait."""
    assert isinstance(request.answer, TimedAwaitable)
    received, mutation_ms = request.received, 0
    if request.session is not None:
        received = max(received, request.session.opened_bytes // USUAL_RATIO)
        mutation_ms = request.session.mutation_ms
    request.throttle_ms = await services.quotas.throttle_ms(
        request.limits,
        request.api.key,
        received,
        _record_bytes(response) if request.api.key in FETCHES else 0,
        request.answer.seconds,
        mutation_ms,
    )
    if request.slowed:
        request.throttle_ms = max(request.throttle_ms, services.memory.throttle_ms())
    asked = max(request.throttle_ms, request.pause_ms)
    if asked and response is not None and hasattr(response, "throttle_time_ms"):
        longest = max(asked, response.throttle_time_ms)
        return msgspec.structs.replace(response, throttle_time_ms=longest)
    return response


def _record_bytes(response: Any) -> int:
    """Return the bytes of records in a Fetch response."""
    return sum(
        sum(map(len, partition.records or ()))
        for topic in getattr(response, "responses", ())
        for partition in topic.partitions
    )


def _is_long(response: Message) -> bool:
    """Return whether encoding would block the event loop: more than MANY_ROWS rows."""
    fields = (getattr(response, name) for name in response.__struct_fields__)
    return any(isinstance(field, list) and len(field) > MANY_ROWS for field in fields)


def finish_at_once(request: Request, services: Services) -> list[Buffer] | NotReady | None:
    """Return the response of a `Deferred` whose reply has arrived, without waiting.

    Returns NOT_READY if it must be awaited.
    """
    assert isinstance(request.answer, Deferred)
    response = request.answer.at_once()
    if isinstance(response, NotReady):
        return NOT_READY
    return _respond(request, response, services)


def _respond(
    request: Request,
    response: Message | None,
    services: Services,
    parts: list[Buffer] | None = None,
) -> list[Buffer] | None:
    row = request.api
    if response is None:
        services.metrics.answered(row.name, "NONE", perf_counter() - request.began)
        return None
    if parts is None:
        parts = encode_parts(response, request.version)
    head = encode_response_header(row.key, request.version, request.correlation_id)
    size = len(head) + sum(map(len, parts))
    code = first_error(response, request.version)
    outcome = "NONE" if not code else ErrorCode(code).name
    services.metrics.answered(row.name, outcome, perf_counter() - request.began)
    return [size.to_bytes(4, "big") + head, *parts]


def _promise(fetch: Message, services: Services, client: Session) -> int:
    """Return the max bytes of the response: a partition returns one batch at least."""
    assert isinstance(fetch, FetchRequest)
    session = services.fetch_sessions.find(fetch.session_id, client.principal)
    max_bytes = min(fetch.max_bytes, services.settings.integer("fetch.max.bytes"))
    total = 0 if session is None else len(session.partitions) * USUAL_BATCH
    for topic in fetch.topics:
        for partition in topic.partitions:
            total += max(partition.partition_max_bytes, USUAL_BATCH)
        if total >= max_bytes:
            break
    return max(0, min(total, max_bytes))


def _unsupported(correlation_id: int, services: Services) -> list[Buffer]:
    response = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[
            ApiVersion(api_key=row.key, min_version=row.versions[0], max_version=row.versions[1])
            for row in services.apis
        ],
    )
    body = b"".join(encode_parts(response, 0))
    head = encode_response_header(API_VERSIONS, 0, correlation_id)
    return [(len(head) + len(body)).to_bytes(4, "big") + head + body]
