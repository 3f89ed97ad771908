"""A connection that authenticates with SASL/PLAIN and exchanges raw frames."""

import re
import socket
import struct
from importlib import import_module
from typing import Any

from korvet.wire.headers import RequestHeader
from korvet.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from korvet.wire.messages.sasl_handshake import SaslHandshakeRequest
from korvet.wire.schema import Message, decode, encode
from tests.support.wire_client import decode_response_header, encode_request_header, frame

TIMEOUT_S = 30


class SaslClient:
    """A client of one user, which connects again after the broker closed the connection."""

    def __init__(self, address: str, user: str, password: str) -> None:
        host, _, port = address.rpartition(":")
        self._place = (host, int(port))
        self._token = f"\0{user}\0{password}".encode()
        self._socket: socket.socket | None = None

    def ask(self, request: Message, version: int) -> Any:
        """Return the response. Raises EOFError if the broker closes the connection instead."""
        if self._socket is None:
            self._connect()
        try:
            return self._exchange(request, version)
        except (EOFError, ConnectionError) as error:
            self.close()
            raise EOFError(str(error)) from error

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
        self._socket = None

    def _connect(self) -> None:
        self._socket = socket.create_connection(self._place, TIMEOUT_S)
        handshake = self._exchange(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert handshake.error_code == 0, handshake
        answer = self._exchange(SaslAuthenticateRequest(auth_bytes=self._token), 2)
        assert answer.error_code == 0, answer

    def _exchange(self, request: Message, version: int) -> Any:
        assert self._socket is not None
        key = request.__message__.key
        head = encode_request_header(RequestHeader(key, version, 1, "acls"))
        self._socket.sendall(frame(head + encode(request, version)))
        (length,) = struct.unpack(">i", self._exactly(4))
        content = self._exactly(length)
        _, at = decode_response_header(key, version, content)
        return decode(_response_of(request), content, version, at)

    def _exactly(self, size: int) -> bytes:
        assert self._socket is not None
        found = b""
        while len(found) < size:
            part = self._socket.recv(size - len(found))
            if not part:
                raise EOFError("the broker closed the connection")
            found += part
        return found


def _response_of(request: Message) -> type[Message]:
    name = type(request).__name__.removesuffix("Request")
    module = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
    found: type[Message] = getattr(
        import_module(f"korvet.wire.messages.{module}"), f"{name}Response"
    )
    return found
