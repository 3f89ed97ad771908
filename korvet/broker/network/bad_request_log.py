"""Log fields and reasons for bytes that are not a Kafka request."""

from korvet import apis
from korvet.broker.network.receive_buffer import BadFrame
from korvet.wire.records import Buffer

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
