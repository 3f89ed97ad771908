"""The types of message annotations, helpers that generated codecs call, and their errors.

Rules
1. A fixed-size type is one `struct` code; every other type is a length followed by bytes or items.
2. Classic lengths are big-endian int16 (strings) or int32; compact ones are an unsigned varint of
length + 1. In both, the smallest value (-1, or 0) is null.
3. No function allocates by an announced length before that many bytes are known to be there.
4. A message has at most MAX_ELEMENTS elements, list items and tagged fields together: the smallest
take a byte or two on the wire, and a hundred bytes of memory or as many nanoseconds.
5. MalformedRequest and UnsupportedVersion are the peer's fault: answer if the protocol has an
answer, otherwise close. NotEncodable is Korvet's: a handler built a value that its version cannot
carry.
"""

import codecs
import struct
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, TypeAlias
from uuid import UUID


class MalformedRequest(ValueError):
    """The bytes do not match their API and version; the message begins with the field."""


class UnsupportedVersion(ValueError):
    """The message does not exist in this version."""


class NotEncodable(ValueError):
    """A value does not fit its field in this version: a bug in Korvet."""


Buffer: TypeAlias = bytes | bytearray | memoryview

MAX_ELEMENTS = 250_000
MAX_STRING_BYTES = 2**15 - 1
"""Max bytes of a string."""
AS_JAVA = "korvet.as_java"
"""Error handler that decodes each invalid piece of UTF-8 as one U+FFFD, as Java does.

Raises UnicodeDecodeError if that could exceed the length limit of a string.
"""


def _as_java(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError) or len(error.object) > MAX_STRING_BYTES // 3:
        raise error
    # The whole rest at once: a call per invalid byte would take half a microsecond.
    return error.object[error.start :].decode("utf-8", "replace"), len(error.object)


codecs.register_error(AS_JAVA, _as_java)


class Kind:
    """Marks an annotation as one wire type; `code` is its `struct` code if its size is fixed."""

    __slots__ = ("code", "name")

    def __init__(self, name: str, code: str = "") -> None:
        self.name = name
        self.code = code

    def __repr__(self) -> str:
        return self.name


i8: TypeAlias = Annotated[int, Kind("i8", "b")]
i16: TypeAlias = Annotated[int, Kind("i16", "h")]
i32: TypeAlias = Annotated[int, Kind("i32", "i")]
i64: TypeAlias = Annotated[int, Kind("i64", "q")]
u16: TypeAlias = Annotated[int, Kind("u16", "H")]
u32: TypeAlias = Annotated[int, Kind("u32", "I")]
f64: TypeAlias = Annotated[float, Kind("f64", "d")]
uuid: TypeAlias = Annotated[UUID, Kind("uuid", "16s")]
batches: TypeAlias = Annotated[Buffer, Kind("records")]
"""Record batches: a memoryview into the request when decoded, any buffer when encoded."""
batch_parts: TypeAlias = Annotated[Buffer | Sequence[Buffer], Kind("records")]
"""Record batches on the wire; when encoded also several buffers in a row."""

KINDS: dict[object, Kind] = {
    bool: Kind("bool", "?"),
    str: Kind("str"),
    bytes: Kind("bytes"),
    UUID: Kind("uuid", "16s"),
}
"""Python types that imply a wire type. `int` is not one: it has no size."""

ZERO_UUID = UUID(int=0)
"""Kafka's null topic id."""


class Fault(Exception):
    """Raised by a codec at the position of the fault; the caller adds the field and re-raises."""


def uvarint_tail(data: Buffer, pos: int, first: int) -> tuple[int, int]:
    """Return the value and end of an unsigned varint whose first byte has its high bit set."""
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos
    raise Fault("a varint longer than 5 bytes")


def skip_tags(data: Buffer, pos: int, limit: int, count: int) -> int:
    """Return the position after `count` unknown tagged fields."""
    if count > MAX_ELEMENTS:
        raise Fault("more elements than any request has")
    for _ in range(count):
        tag = data[pos]
        pos += 1
        if tag > 0x7F:
            tag, pos = uvarint_tail(data, pos, tag)
        size = data[pos]
        pos += 1
        if size > 0x7F:
            size, pos = uvarint_tail(data, pos, size)
        pos += size
        if pos > limit:
            raise Fault(f"tagged field {tag} claims {size} bytes, more than there are")
    return pos


class _Uvarints(dict[int, bytes]):
    """Value to its unsigned varint; small ones are cached: the common case is one dict lookup."""

    def __missing__(self, value: int) -> bytes:
        if value < 0:
            raise Fault(f"{value} as an unsigned varint")
        left, out = value, bytearray()
        while left > 0x7F:
            out.append(left & 0x7F | 0x80)
            left >>= 7
        out.append(left)
        encoded = bytes(out)
        if value < 1 << 14:
            self[value] = encoded
        return encoded


UVARINT = _Uvarints()


class _Uuids(dict[bytes, UUID]):
    """16 bytes to UUID. Topic ids come in every request, and building a UUID is slow."""

    def __missing__(self, raw: bytes) -> UUID:
        if len(self) >= 4096:
            self.clear()
        value = self[raw] = UUID(bytes=raw)
        return value


UUIDS = _Uuids({ZERO_UUID.bytes: ZERO_UUID})


class _BySize(dict[int, Any]):
    """Count to the function that packs or unpacks that many values of one code; short ones are
    cached.
    """

    def __init__(self, code: str, method: str) -> None:
        super().__init__()
        self._code = code
        self._method = method

    def __missing__(self, count: int) -> Any:
        function = getattr(struct.Struct(f">{count}{self._code}"), self._method)
        if count < 256:
            self[count] = function
        return function


@cache
def packers(code: str) -> dict[int, Any]:
    """Count to `pack` for a list of that many values of one `struct` code."""
    return _BySize(code, "pack")


@cache
def unpackers(code: str) -> dict[int, Any]:
    """Count to `unpack_from` for a list of that many values of one `struct` code."""
    return _BySize(code, "unpack_from")
