"""PLAIN (RFC 4616), checked against the users' SCRAM credentials.

Rules
- PBKDF2 takes milliseconds of CPU time and runs in a thread.
- A password that was right is recognised without PBKDF2: a keyed hash of it is cached in memory.
  The hash includes the credential, so that a changed password is checked again.
"""

import asyncio
import hashlib
import secrets
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

from korvet.security.attempts import Attempts, TooManyAttempts
from korvet.security.credentials import Mechanism
from korvet.security.session import AuthenticationFailed, Identity, Step
from korvet.security.users import KnownOrDecoy, Users

MAX_VERIFIED = 10_000
"""Max cached hashes of right passwords, 64 bytes each."""
_MECHANISMS = (Mechanism.SCRAM_SHA_512, Mechanism.SCRAM_SHA_256)
_threads = ThreadPoolExecutor(2, "pbkdf2")


class PasswordCheck:
    """Checks passwords, and recognises those that were right."""

    def __init__(self, users: Users, attempts: Attempts) -> None:
        self._users = users
        self._attempts = attempts
        self._secret = secrets.token_bytes(32)
        self._verified: OrderedDict[bytes, None] = OrderedDict()

    async def check(self, user: str, password: bytes, address: str) -> None:
        """Check the password that a client at an address gave.

        Raises AuthenticationFailed if it is wrong, or if too many others are being checked.
        """
        found = await self._users.find(user, _MECHANISMS)
        mark = self._mark(found, password)
        if found.is_known and mark in self._verified:
            self._verified.move_to_end(mark)
            return
        loop, known = asyncio.get_running_loop(), user if found.is_known else None
        matches = found.credential.matches
        try:
            async with self._attempts.turn(address, user):
                right = await loop.run_in_executor(_threads, matches, found.mechanism, password)
        except TooManyAttempts:
            raise _failed("Invalid username or password", "too many attempts", known) from None
        if not right or not found.is_known:
            await self._attempts.failed(address, user)
            reason = "wrong password" if found.is_known else "unknown user"
            raise _failed("Invalid username or password", reason, known)
        self._attempts.succeeded(address, user)
        self._verified[mark] = None
        if len(self._verified) > MAX_VERIFIED:
            self._verified.popitem(last=False)

    def _mark(self, candidate: KnownOrDecoy, password: bytes) -> bytes:
        """Return the keyed hash of credential and password."""
        credential = candidate.credential
        mark = hashlib.blake2b(key=self._secret, digest_size=32)
        for part in (credential.stored_key, credential.salt, password):
            mark.update(len(part).to_bytes(8, "big") + part)
        return mark.digest()


class PlainExchange:
    """The server's side of a PLAIN exchange: one message with name and password."""

    def __init__(self, passwords: PasswordCheck, address: str) -> None:
        self._passwords = passwords
        self._address = address

    async def step(self, token: bytes) -> Step:
        """Check name and password. Raises AuthenticationFailed."""
        parts = token.split(b"\0")
        if len(parts) != 3:
            raise AuthenticationFailed(
                f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}",
                "invalid message",
            )
        try:
            authorization_id, user = (part.decode() for part in parts[:2])
        except UnicodeDecodeError:
            raise _failed("Invalid username or password", "a name is not UTF-8") from None
        password = parts[2]
        if not user:
            raise _failed("username not specified", "no user name")
        if not password:
            raise _failed("password not specified", "no password")
        if authorization_id and authorization_id != user:
            raise _failed(
                "Client requested an authorization id that is different from username",
                "authorization id differs from user name",
            )
        await self._passwords.check(user, password, self._address)
        return Step(b"", Identity(user))


def _failed(message: str, reason: str, user: str | None = None) -> AuthenticationFailed:
    return AuthenticationFailed(f"Authentication failed: {message}", reason, user)
