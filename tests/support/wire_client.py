"""The client's side of the wire: frames, request headers, response headers, batches."""

import struct
from collections.abc import Iterator

from korvet.wire.errors import MalformedRequest
from korvet.wire.headers import (
    RequestHeader,
    request_header_version,
    response_header_version,
    skip_tag_section,
)
from korvet.wire.primitives import Buffer, Fault
from korvet.wire.records import LOG_OVERHEAD

_FIXED_V0 = struct.Struct(">hhi")
_INT32 = struct.Struct(">i")


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


def decode_response_header(
    api_key: int, api_version: int, data: Buffer, offset: int = 0
) -> tuple[int, int]:
    """Return the correlation id and the position after the header."""
    try:
        correlation_id: int = _INT32.unpack_from(data, offset)[0]
        pos = offset + _INT32.size
        if response_header_version(api_key, api_version):
            pos = skip_tag_section(data, pos)
    except (struct.error, IndexError):
        raise MalformedRequest("header: the data ends here") from None
    except Fault as fault:
        raise MalformedRequest(f"header: {fault}") from None
    return correlation_id, pos


def batches_in(data: Buffer) -> Iterator[memoryview]:
    """Yield the whole batches in `data`; an incomplete one at the end is left out."""
    view = memoryview(data)
    at = 0
    while at + LOG_OVERHEAD <= len(view):
        (length,) = struct.unpack_from(">i", view, at + 8)
        end = at + LOG_OVERHEAD + length
        if length <= 0 or end > len(view):
            return
        yield view[at:end]
        at = end
