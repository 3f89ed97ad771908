"""SCRAM-SHA-256 and SCRAM-SHA-512, the server's side (RFC 5802, RFC 7677), as in Kafka.

The package scramp is not used: it refuses authorization ids, extensions and short salts, and
normalizes names, which would then differ from those that ACLs name.

Rules
- Without channel binding: a client that requires or offers it (gs2 flags `p=`, `y`) is refused.
- An authorization id must be the user's name; extensions are ignored.
- An unknown user gets a decoy's salt and fails at the proof, like a wrong password. Every failure
  has one message.
"""

import base64
import binascii
import hashlib
import hmac
import re
import secrets

from korvet.security.attempts import Attempts, TooManyAttempts
from korvet.security.credentials import Mechanism
from korvet.security.session import AuthenticationFailed, Identity, Step
from korvet.security.users import KnownOrDecoy, Users

_NAME = r"(?:[^\x00=,]|=2C|=3D)+"
_NONCE = r"[!-+\--~]+"
_EXTENSIONS = r"(?:,[A-Za-z]=[^\x00,]*)*"
_BASE64 = r"[A-Za-z0-9+/]+={0,2}"
_FIRST = re.compile(
    rf"(n,(?:a=({_NAME}))?,)((?:m=[^\x00,]*,)?n=({_NAME}),r=({_NONCE}){_EXTENSIONS})"
)
_FINAL = re.compile(rf"(c=({_BASE64}),r=({_NONCE}){_EXTENSIONS}),p=({_BASE64})")
_DEFAULT_HEADER = b"n,,"
"""Header that Java's client binds whatever it sent."""


class ScramExchange:
    """The server's side of a SCRAM exchange: the first message, then the proof."""

    def __init__(
        self, mechanism: Mechanism, users: Users, attempts: Attempts, address: str
    ) -> None:
        self._attempts = attempts
        self._address = address
        self._mechanism = mechanism
        self._users = users
        self._user = ""
        self._candidate: KnownOrDecoy | None = None
        self._headers: tuple[bytes, ...] = ()
        self._nonce = ""
        self._messages = ""

    async def step(self, token: bytes) -> Step:
        """Answer the first message or check the proof. Raises AuthenticationFailed."""
        try:
            text = token.decode()
        except UnicodeDecodeError:
            raise self._failed("a message is not UTF-8") from None
        if self._candidate is None:
            return await self._first(text)
        try:
            async with self._attempts.turn(self._address, self._user):
                step = self._final(text, self._candidate)
        except TooManyAttempts:
            raise self._failed("too many attempts") from None
        except AuthenticationFailed:
            await self._attempts.failed(self._address, self._user)
            raise
        self._attempts.succeeded(self._address, self._user)
        return step

    async def _first(self, text: str) -> Step:
        match = _FIRST.fullmatch(text)
        if match is None:
            raise self._failed("invalid first message")
        header, authorization_id, bare, name, nonce = match.groups()
        self._user = _unescaped(name)
        if authorization_id is not None and _unescaped(authorization_id) != self._user:
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different "
                "from username",
                "authorization id differs from user name",
            )
        found = self._candidate = await self._users.find(self._user, [self._mechanism])
        self._headers = (header.encode(), _DEFAULT_HEADER)
        self._nonce = nonce + secrets.token_urlsafe(18)
        salt = base64.b64encode(found.credential.salt).decode()
        answer = f"r={self._nonce},s={salt},i={found.credential.iterations}"
        self._messages = f"{bare},{answer}"
        return Step(answer.encode())

    def _final(self, text: str, candidate: KnownOrDecoy) -> Step:
        match = _FINAL.fullmatch(text)
        if match is None:
            raise self._failed("invalid final message")
        without_proof, binding, nonce, proof = match.groups()
        # librdkafka before 2.6.1 puts its nonce before the whole one again; Kafka accepts that.
        if _decoded(binding) not in self._headers or not nonce.endswith(self._nonce):
            raise self._failed("channel binding or nonce differs")
        credential, digest = candidate.credential, self._mechanism.digest
        message = f"{self._messages},{without_proof}".encode()
        signature = hmac.digest(credential.stored_key, message, digest)
        client_key = bytes(a ^ b for a, b in zip(_decoded(proof), signature, strict=False))
        stored_key = hashlib.new(digest, client_key).digest()
        if not hmac.compare_digest(stored_key, credential.stored_key) or not candidate.is_known:
            raise self._failed("wrong password" if candidate.is_known else "unknown user")
        answer = base64.b64encode(hmac.digest(credential.server_key, message, digest))
        return Step(b"v=" + answer, Identity(self._user))

    def _failed(self, reason: str) -> AuthenticationFailed:
        user = self._user if self._candidate is not None and self._candidate.is_known else None
        return AuthenticationFailed(
            "Authentication failed during authentication due to invalid credentials with SASL "
            f"mechanism {self._mechanism.title}",
            reason,
            user,
        )


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _decoded(text: str) -> bytes:
    """Return the bytes of Base64; empty for invalid text, which then matches nothing."""
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return b""
