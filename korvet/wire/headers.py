"""Request and response headers, whose version depends on the API and its version.

Rules
1. A request header is v2 (with a tag section) if the request is flexible, else v1. The client id is
a classic nullable string in both. ControlledShutdown 0 alone has v0, without a client id.
2. A response header is v1 (with a tag section) if the response is flexible, else v0. ApiVersions is
always v0: its client does not know the broker's version yet.
3. The header of an unknown API or version must still be readable, to be refused by name.
"""

import struct
from functools import lru_cache
from typing import Final

import msgspec

from korvet.wire.primitives import AS_JAVA, Buffer, Fault, MalformedRequest, skip_tags, uvarint_tail

API_VERSIONS: Final = 18
CONTROLLED_SHUTDOWN: Final = 7

FIRST_FLEXIBLE: Final[dict[int, int]] = {
    0: 9, 1: 12, 2: 6, 3: 9, 4: 4, 5: 2, 6: 6, 7: 3, 8: 8, 9: 6,
    10: 3, 11: 6, 12: 4, 13: 4, 14: 4, 15: 5, 16: 3, 18: 3, 19: 5, 20: 4,
    21: 2, 22: 2, 23: 4, 24: 3, 25: 3, 26: 3, 27: 1, 28: 3, 29: 2, 30: 2,
    31: 2, 32: 4, 33: 2, 34: 2, 35: 2, 36: 2, 37: 2, 38: 2, 39: 2, 40: 2,
    41: 2, 42: 2, 43: 2, 44: 1, 48: 1, 49: 1, 53: 1, 54: 1,
}  # fmt: skip
"""API key to its first flexible version."""

NEVER_FLEXIBLE: Final = frozenset({17, 47})
"""SaslHandshake and OffsetDelete. Keys above 44 in neither table are flexible from 0."""

_FIXED = struct.Struct(">hhih")
_FIXED_V0 = struct.Struct(">hhi")
_INT32 = struct.Struct(">i")


class RequestHeader(msgspec.Struct, frozen=True, gc=False):
    """API, version, client id; `correlation_id` is repeated in the response header."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None = None


def is_flexible(api_key: int, api_version: int) -> bool:
    """Return whether that version of that API has compact lengths and tag sections."""
    first = FIRST_FLEXIBLE.get(api_key)
    if first is None:
        return api_key > 44 and api_key not in NEVER_FLEXIBLE
    return api_version >= first


@lru_cache(maxsize=1024)
def request_header_version(api_key: int, api_version: int) -> int:
    """Return 0, 1 or 2."""
    if api_key == CONTROLLED_SHUTDOWN and api_version == 0:
        return 0
    return 2 if is_flexible(api_key, api_version) else 1


@lru_cache(maxsize=1024)
def response_header_version(api_key: int, api_version: int) -> int:
    """Return 0 or 1."""
    return int(api_key != API_VERSIONS and is_flexible(api_key, api_version))


def decode_request_header(data: Buffer, offset: int = 0) -> tuple[RequestHeader, int]:
    """Return the header at `offset` and the position after it. Raises MalformedRequest."""
    try:
        return _request_header(data, offset)
    except (struct.error, IndexError):
        raise MalformedRequest("header: the data ends here") from None
    except UnicodeDecodeError:
        raise MalformedRequest("header.client_id: not UTF-8") from None
    except Fault as fault:
        raise MalformedRequest(f"header: {fault}") from None


def _request_header(data: Buffer, offset: int) -> tuple[RequestHeader, int]:
    key, version, correlation_id = _FIXED_V0.unpack_from(data, offset)
    header_version = request_header_version(key, version)
    if header_version == 0:
        return RequestHeader(key, version, correlation_id), offset + _FIXED_V0.size
    key, version, correlation_id, length = _FIXED.unpack_from(data, offset)
    pos = offset + _FIXED.size
    client_id = None
    if length >= 0:
        end = pos + length
        if end > len(data):
            raise Fault(f"a client id of {length} bytes where {len(data) - pos} are left")
        client_id = str(data[pos:end], "utf-8", AS_JAVA)
        pos = end
    elif length != -1:
        raise Fault(f"a client id of {length} bytes")
    if header_version == 2:
        pos = skip_tag_section(data, pos)
    return RequestHeader(key, version, correlation_id, client_id), pos


def skip_tag_section(data: Buffer, pos: int) -> int:
    """Return the position after the tag section at `pos`."""
    count = data[pos]
    pos += 1
    if count > 0x7F:
        count, pos = uvarint_tail(data, pos, count)
    return skip_tags(data, pos, len(data), count)


def encode_response_header(api_key: int, api_version: int, correlation_id: int) -> bytes:
    """Encode the header of a response of that API and version."""
    end = b"\0" if response_header_version(api_key, api_version) else b""
    return _INT32.pack(correlation_id) + end


def frame(*parts: Buffer) -> bytes:
    """Return one frame that holds `parts` in a row."""
    return b"".join((_INT32.pack(sum(map(len, parts))), *parts))


def encode_request_header(header: RequestHeader) -> bytes:
    """Encode the header for its API and version."""
    header_version = request_header_version(header.api_key, header.api_version)
    start = _FIXED_V0.pack(header.api_key, header.api_version, header.correlation_id)
    if header_version == 0:
        return start
    client_id = b"" if header.client_id is None else header.client_id.encode()
    length = -1 if header.client_id is None else len(client_id)
    end = b"\0" if header_version == 2 else b""
    return start + length.to_bytes(2, "big", signed=True) + client_id + end


def decode_response_header(api_key: int, api_version: int, data: Buffer) -> tuple[int, int]:
    """Return the correlation id and the position after the header."""
    try:
        correlation_id: int = _INT32.unpack_from(data)[0]
        pos = _INT32.size
        if response_header_version(api_key, api_version):
            pos = skip_tag_section(data, pos)
    except (struct.error, IndexError):
        raise MalformedRequest("header: the data ends here") from None
    except Fault as fault:
        raise MalformedRequest(f"header: {fault}") from None
    return correlation_id, pos
