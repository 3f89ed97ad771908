"""One frame in, one answer out: header, decode, handler, encode.

Rules
- The row of the API table decides; a key or a version that is not in it is refused: ApiVersions
  answers in version 0 with UNSUPPORTED_VERSION, anything else raises CloseConnection.
- A request that does not parse has no answer in Kafka's protocol either: CloseConnection, with the
  reason.
- Bytes behind a request are passed over: librdkafka's Metadata for all topics has some.
- A handler's failure is this request's alone: it is logged with its traceback, and the connection
  ends, since nobody can say what the answer would have been.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import TypeAlias

import msgspec

from korvet import apis, logfmt
from korvet.broker.error_responses import error_response
from korvet.broker.response_errors import first_error
from korvet.context import Context, Services
from korvet.deferred import NOT_READY, CloseWithoutResponse, Deferred, NotReady
from korvet.errors import ErrorCode
from korvet.store.errors import StoreError, StoreUnavailable
from korvet.wire.headers import decode_request_header, encode_response_header
from korvet.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from korvet.wire.requests_v07 import is_v07_request
from korvet.wire.schema import MalformedRequest, Message, decode, encode_parts

Buffer: TypeAlias = bytes | bytearray | memoryview
PRODUCE, FETCH, API_VERSIONS = 0, 1, 18
MANY_ROWS = 500
"""An answer of more rows is encoded beside the loop."""
_encoder = ThreadPoolExecutor(1, "encoder")
"""One answer at a time: the loop has as good as nothing of the interpreter beside several."""

logger = logfmt.get("broker.dispatch")


class CloseConnection(Exception):
    """The connection must end; the message says why, and `about` which request, for the log."""

    def __init__(self, reason: str, **about: object) -> None:
        super().__init__(reason)
        self.about = about


class Request(msgspec.Struct):
    """A frame taken in: who asked for what, and the answer to be awaited."""

    api: apis.Api
    version: int
    correlation_id: int
    client_id: str | None
    answer: Awaitable[Message | None]
    body: Message | None
    began: float
    promise: int = 0
    """How many bytes the answer may have, where that is many."""


def may_be_large(frame: Buffer) -> bool:
    """Whether the answer to this frame could be large."""
    return frame[:2] == FETCH.to_bytes(2, "big")  # a frame may be a byte long


def begin(
    frame: Buffer, services: Services, client_host: str, release: Callable[[], None]
) -> Request | list[Buffer]:
    """Decode the request and call its handler, or return a response that needs none.

    Raises CloseConnection.
    """
    began = perf_counter()
    try:
        header, at = decode_request_header(frame)
    except MalformedRequest as error:
        raise CloseConnection(f"{error}{_hint(frame)}", **_claimed(frame)) from None
    row = apis.BY_KEY.get(header.api_key)
    version = header.api_version
    if row is None or not row.versions[0] <= version <= row.versions[1]:
        if header.api_key == API_VERSIONS:
            return _unsupported(header.correlation_id, services)
        raise CloseConnection(
            f"this API or version is not served here{_hint(frame)}",
            api=row.name if row else header.api_key,
            version=version,
            client_id=header.client_id,
        )
    try:
        body = decode(row.request, frame, version, at, exact=False)
    except MalformedRequest as error:
        raise CloseConnection(
            f"{error}{_hint(frame)}",
            api=row.name,
            version=version,
            client_id=header.client_id,
        ) from None
    context = Context(services, row.key, version, header.client_id, client_host, release)
    answer = services.interceptor.response(row, body) if services.interceptor else None
    if answer is None:
        answer = row.handler(body, context)
    promise = _promise(body, services) if row.key == FETCH else 0
    return Request(
        row, version, header.correlation_id, header.client_id, answer, body, began, promise
    )


def _claimed(frame: Buffer) -> dict[str, object]:
    """The API and version that a frame begins with."""
    if len(frame) < 4:
        return {}
    key = int.from_bytes(frame[:2], "big", signed=True)
    row = apis.BY_KEY.get(key)
    version = int.from_bytes(frame[2:4], "big", signed=True)
    return {"api": row.name if row else key, "version": version}


def _hint(frame: Buffer) -> str:
    """Return a hint for the log if the frame is a request of the Kafka 0.7 protocol."""
    if not is_v07_request(frame):
        return ""
    return "; it is a request of Kafka 0.7, which --legacy-listen serves on a port of its own"


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
            logger.error_again("a request failed in Redis", api=row.name, error=error)
        response = error_response(row, request.body, error)
    parts = None
    if response is not None and _is_long(response):
        loop = asyncio.get_running_loop()
        parts = await loop.run_in_executor(_encoder, encode_parts, response, request.version)
    return _respond(request, response, services, parts)


def _is_long(response: Message) -> bool:
    """Whether it has so many rows that others would wait for their answers while it is encoded."""
    fields = (getattr(response, name) for name in response.__struct_fields__)
    return any(isinstance(field, list) and len(field) > MANY_ROWS for field in fields)


def finish_at_once(request: Request, services: Services) -> list[Buffer] | NotReady | None:
    """The same without waiting, for an answer that comes `Deferred` and whose reply is there; LATER
    when it must be awaited after all."""
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


def _promise(fetch: Message, services: Services) -> int:
    asked: int = getattr(fetch, "max_bytes", 0)
    return max(0, min(asked, services.settings.integer("fetch.max.bytes")))


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
