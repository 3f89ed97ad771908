"""The client's side of SASL, byte by byte."""

import base64
import hashlib
import hmac
from typing import Any

from korvet.apis import BY_KEY
from korvet.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from korvet.wire.messages.sasl_handshake import SaslHandshakeRequest
from korvet.wire.schema import Message
from tests.support.raw_client import Peer


def plain(user: str, password: str, authorization_id: str = "") -> bytes:
    """Return the client's message of PLAIN."""
    return f"{authorization_id}\0{user}\0{password}".encode()


def bearer(token: str, authorization_id: str = "") -> bytes:
    """Return the client's first message of OAUTHBEARER."""
    who = f"a={authorization_id}" if authorization_id else ""
    return f"n,{who},\x01auth=Bearer {token}\x01\x01".encode()


class SaslClient:
    """A client of one user by PLAIN, which connects again after a connection was closed."""

    def __init__(self, address: str, user: str, password: str) -> None:
        self._address = address
        self._token = plain(user, password)
        self._peer: Peer | None = None

    def ask(self, request: Message, version: int) -> Any:
        """Return the response. Raises EOFError if the broker closes the connection instead."""
        if self._peer is None:
            self._peer = self._connect()
        try:
            return self._peer.ask(BY_KEY[request.__message__.key].name, version, request, "acls")
        except (EOFError, ConnectionError) as error:
            self.close()
            raise EOFError(str(error)) from error

    def close(self) -> None:
        """Close the connection."""
        if self._peer is not None:
            self._peer.socket.close()
        self._peer = None

    def _connect(self) -> Peer:
        peer = Peer(self._address)
        handshake = peer.ask("SaslHandshake", 1, SaslHandshakeRequest(mechanism="PLAIN"))
        assert handshake.error_code == 0, handshake
        answer = peer.ask("SaslAuthenticate", 2, SaslAuthenticateRequest(auth_bytes=self._token))
        assert answer.error_code == 0, answer
        return peer


class ScramClient:
    """A SCRAM client (RFC 5802)."""

    def __init__(
        self, mechanism: str, user: str, password: str, *, authorization_id: str = ""
    ) -> None:
        self._digest = mechanism.removeprefix("SCRAM-").replace("-", "").lower()
        self._password = password.encode()
        who = f"a={_escaped(authorization_id)}" if authorization_id else ""
        self._header = f"n,{who},"
        self._bare = f"n={_escaped(user)},r=fyko+d2lbbFgONRv9qkxdawL"
        self._signature = b""

    def first(self) -> bytes:
        return (self._header + self._bare).encode()

    def final(self, answer: bytes) -> bytes:
        nonce, salt, iterations = (part[2:] for part in bytes(answer).decode().split(","))
        salted = hashlib.pbkdf2_hmac(
            self._digest, self._password, base64.b64decode(salt), int(iterations)
        )
        client_key = hmac.digest(salted, b"Client Key", self._digest)
        stored_key = hashlib.new(self._digest, client_key).digest()
        binding = base64.b64encode(self._header.encode()).decode()
        without_proof = f"c={binding},r={nonce}"
        message = f"{self._bare},{bytes(answer).decode()},{without_proof}".encode()
        signature = hmac.digest(stored_key, message, self._digest)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        server_key = hmac.digest(salted, b"Server Key", self._digest)
        self._signature = hmac.digest(server_key, message, self._digest)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, answer: bytes) -> None:
        assert bytes(answer) == b"v=" + base64.b64encode(self._signature)


def _escaped(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")
