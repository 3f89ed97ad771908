"""Log fields and reasons for bytes that are not a Kafka request."""

from korvet import apis
from korvet.broker.receive_buffer import BadFrame

_HTTP = (b"GET ", b"POST", b"HEAD", b"PUT ")
_TLS = b"\x16\x03"


def named(head: bytes) -> dict[str, object]:
    """Return API and version from the start of a frame (length first), if the API is known."""
    row = apis.BY_KEY.get(int.from_bytes(head[4:6], "big")) if len(head) >= 8 else None
    return {"api": row.name, "version": int.from_bytes(head[6:8], "big")} if row else {}


def wrong_length(bad: BadFrame, speaks: str, setting: str = "socket.request.max.bytes") -> str:
    """Return why a frame with that length was rejected."""
    if bad.head[:4] in _HTTP:
        return f"this is HTTP, and the port speaks {speaks}"
    if bad.head[:2] == _TLS:
        return f"this is TLS, and the port speaks {speaks} without TLS"
    whose = "for a request without records" if bad.control else setting
    return f"{bad} ({whose})"
