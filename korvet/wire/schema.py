"""Messages as classes, and their codecs: one class for all versions, its annotations the schema.

@request(key=12, versions=(0, 4), flexible=4)
class HeartbeatRequest(Message):
    group_id: str
    generation_id: i32
    member_id: str
    group_instance_id: Annotated[str | None, Field(since=3)] = None

@response(HeartbeatRequest)
class HeartbeatResponse(Message):
    ...

Rules
1. `layout.py` defines the annotations; `decoding.py` and `encoding.py` turn a layout into one
Python function each, compiled at the first use of that message and version, then cached.
2. A field that a version lacks has its default after decoding, and is left out when encoding.
3. Decoding raises MalformedRequest or UnsupportedVersion, and nothing else, whatever the bytes.
"""

from collections.abc import Callable, Iterator
from typing import Any, Self, TypeVar

from korvet.base.errors import ErrorCode
from korvet.wire.decoding import build_decoder
from korvet.wire.encoding import build_encoder
from korvet.wire.layout import Field, Layout, Message, MessageInfo, layout
from korvet.wire.primitives import (
    ZERO_UUID,
    Buffer,
    MalformedRequest,
    NotEncodable,
    UnsupportedVersion,
    batch_parts,
    batches,
    f64,
    i8,
    i16,
    i32,
    i64,
    u16,
    u32,
    uuid,
)

__all__ = [
    "ZERO_UUID",
    "Buffer",
    "ErrorResponse",
    "Field",
    "MalformedRequest",
    "Message",
    "MessageInfo",
    "NotEncodable",
    "Response",
    "UnsupportedVersion",
    "batch_parts",
    "batches",
    "decode",
    "encode",
    "encode_parts",
    "f64",
    "i8",
    "i16",
    "i32",
    "i64",
    "layout_of",
    "messages",
    "request",
    "response",
    "response_of",
    "u16",
    "u32",
    "uuid",
]


class Response(Message):
    """The first field of most responses: for how long a quota makes the client wait."""

    throttle_time_ms: i32 = 0


class ErrorResponse(Response):
    """The first fields of a response that has an error of the whole request."""

    error_code: i16 = 0
    error_message: str | None = None

    @classmethod
    def of(cls, error: ErrorCode, reason: str | None = None) -> Self:
        """Return the response with the error, and its own message if there is no reason."""
        return cls(error_code=error, error_message=reason or error.message)


M = TypeVar("M", bound=Message)

_MESSAGES: dict[tuple[int, bool], type[Message]] = {}
_DECODERS: dict[tuple[type[Message], int], Callable[..., Any]] = {}
_ENCODERS: dict[tuple[type[Message], int], Callable[..., Any]] = {}


def request(
    *, key: int, versions: tuple[int, int], flexible: int | None
) -> Callable[[type[M]], type[M]]:
    """Declare the class as the request of that API in all of `versions`."""
    return lambda cls: _register(cls, MessageInfo(cls.__name__, key, versions, flexible, True))


def response(to: type[Message]) -> Callable[[type[M]], type[M]]:
    """Declare the class as the response to that request, in the request's versions."""
    info = to.__message__
    return lambda cls: _register(
        cls, MessageInfo(cls.__name__, info.key, info.versions, info.flexible, False)
    )


def _register(cls: type[M], info: MessageInfo) -> type[M]:
    if (info.key, info.request) in _MESSAGES:
        known = _MESSAGES[info.key, info.request]
        raise TypeError(f"{cls.__name__}: key {info.key} belongs to {known}")
    cls.__message__ = info
    _MESSAGES[info.key, info.request] = cls
    return cls


def messages() -> Iterator[type[Message]]:
    """Return every message class imported so far, by key, the request before the response."""
    return (cls for _, cls in sorted(_MESSAGES.items(), key=lambda row: (row[0][0], not row[0][1])))


def response_of(cls: type[Message]) -> type[Message]:
    """Return the class of the response to a request of that class."""
    return _MESSAGES[cls.__message__.key, False]


def layout_of(cls: type[Message], version: int) -> Layout:
    """Return the layout of `version`. Raises UnsupportedVersion."""
    info = cls.__message__
    least, highest = info.versions
    if not least <= version <= highest:
        raise UnsupportedVersion(f"{info.name} exists in {least} to {highest}, not in {version}")
    return layout(cls, version, info.is_flexible(version))


def decode(cls: type[M], data: Buffer, version: int, offset: int = 0, *, exact: bool = True) -> M:
    """Decode the message in `data` from `offset` to the end; records are views into `data`.

    Unless `exact`, bytes after the message are ignored, as Kafka's brokers do.
    """
    decoder = _DECODERS.get((cls, version))
    if decoder is None:
        decoder = build_decoder(layout_of(cls, version), f"{cls.__name__} v{version}")
        _DECODERS[cls, version] = decoder
    view = memoryview(data)
    value: M = decoder(data, view, offset, len(data), exact)
    return value


def encode_parts(value: Message, version: int) -> list[Buffer]:
    """Encode the message as buffers in order; records are passed through, all else is joined."""
    cls = type(value)
    encoder = _ENCODERS.get((cls, version))
    if encoder is None:
        encoder = build_encoder(layout_of(cls, version), f"{cls.__name__} v{version}")
        _ENCODERS[cls, version] = encoder
    parts: list[Buffer] = encoder(value)
    return parts


def encode(value: Message, version: int) -> bytes:
    """Encode the message as bytes."""
    return b"".join(encode_parts(value, version))
