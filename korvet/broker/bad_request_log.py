"""What the log says of bytes that are no request: whose they seem to be, and what is wrong."""

from korvet import apis
from korvet.broker.receive_buffer import BadFrame

_HTTP = (b"GET ", b"POST", b"HEAD", b"PUT ")
_TLS = b"\x16\x03"


def named(head: bytes) -> dict[str, object]:
    """The API and version in the first bytes of a frame, length first, where we know them."""
    row = apis.BY_KEY.get(int.from_bytes(head[4:6], "big")) if len(head) >= 8 else None
    return {"api": row.name, "version": int.from_bytes(head[6:8], "big")} if row else {}


def wrong_length(bad: BadFrame, speaks: str) -> str:
    """Why a frame that announces such a length is not taken."""
    if bad.head[:4] in _HTTP:
        return f"this is HTTP, and the port speaks {speaks}"
    if bad.head[:2] == _TLS:
        return f"this is TLS, and the port speaks {speaks} in the clear"
    whose = "for a request without records" if bad.control else "socket.request.max.bytes"
    return f"{bad} ({whose})"
