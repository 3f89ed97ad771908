"""Decode a frame: header, row of the API table, request; and say what bad bytes are.

Rules
- A request that cannot be decoded, or whose API or version is not served, raises CloseConnection,
  as in Kafka: the protocol has no response.
- Bytes after the end of a request are ignored: librdkafka's Metadata for all topics has some.
"""

from korvet import apis
from korvet.broker.network.receive_buffer import BadFrame
from korvet.wire.headers import RequestHeader, decode_request_header
from korvet.wire.records import Buffer
from korvet.wire.requests_v07 import is_v07_request
from korvet.wire.schema import MalformedRequest, Message, decode

_HTTP = (b"GET ", b"POST", b"HEAD", b"PUT ")
_TLS = b"\x16\x03"


def api_fields(frame: Buffer) -> dict[str, object]:
    """Return the API, its key if it is unknown, and the version at the start of a frame."""
    if len(frame) < 4:
        return {}
    key = int.from_bytes(frame[:2], "big", signed=True)
    row = apis.BY_KEY.get(key)
    version = int.from_bytes(frame[2:4], "big", signed=True)
    return {"api": row.name if row else key, "version": version}


def known_api_fields(head: bytes) -> dict[str, object]:
    """Return API and version from the start of a frame (length first), if the API is known."""
    fields = api_fields(head[4:])
    return fields if isinstance(fields.get("api"), str) else {}


def wrong_length(bad: BadFrame, speaks: str, setting: str = "socket.request.max.bytes") -> str:
    """Return why a frame with that length was rejected."""
    if bad.head[:4] in _HTTP:
        return f"this is HTTP, and the port speaks {speaks}"
    if bad.head[:2] == _TLS:
        return f"this is TLS, and the port speaks {speaks} without TLS"
    whose = "for a request without records" if bad.control else setting
    return f"{bad} ({whose})"


PRODUCE, FETCH, API_VERSIONS = 0, 1, 18
_FETCH_KEY = FETCH.to_bytes(2, "big")


class CloseConnection(Exception):
    """Signal to close the connection: the reason and, for the log, the fields of the request."""

    def __init__(self, reason: str, **about: object) -> None:
        super().__init__(reason)
        self.about = about


def may_be_large(frame: Buffer) -> bool:
    """Return whether the response to this frame may be large."""
    return frame[:2] == _FETCH_KEY  # a frame may have one byte


def decode_frame(frame: Buffer) -> tuple[apis.Api, RequestHeader, Message]:
    """Return the frame's row of the table, header and request. Raises CloseConnection."""
    header, at = decode_header(frame)
    row, body = decode_body(frame, header, at)
    return row, header, body


def decode_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """Return the header and where the body begins. Raises CloseConnection."""
    try:
        return decode_request_header(frame)
    except MalformedRequest as error:
        raise CloseConnection(f"{error}{_hint(frame)}", **api_fields(frame)) from None


def is_served(header: RequestHeader) -> bool:
    """Return whether the table has the request's API and version."""
    row = apis.BY_KEY.get(header.api_key)
    return row is not None and row.versions[0] <= header.api_version <= row.versions[1]


def decode_body(frame: Buffer, header: RequestHeader, at: int) -> tuple[apis.Api, Message]:
    """Return the row of the table and the request. Raises CloseConnection."""
    row, version = apis.BY_KEY.get(header.api_key), header.api_version
    reason = "unsupported API or version"
    if row is not None and is_served(header):
        try:
            return row, decode(row.request, frame, version, at, exact=False)
        except MalformedRequest as error:
            reason = str(error)
    raise CloseConnection(
        f"{reason}{_hint(frame)}",
        api=row.name if row else header.api_key,
        version=version,
        client_id=header.client_id,
    )


def _hint(frame: Buffer) -> str:
    """Return a hint for the log if the frame is a request of the Kafka 0.7 protocol."""
    if not is_v07_request(frame):
        return ""
    return "; it is a Kafka 0.7 request, which the port of --legacy-listen serves"
