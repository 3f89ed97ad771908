"""SCRAM credentials: what Redis stores in place of a password (RFC 5802).

Rules
- Kafka's clients do not normalize names and passwords (no SASLprep): both are UTF-8 as given.
- A decoy is the credential of a user that does not exist. It depends on the name, the mechanism and
  a secret of the cluster only, so that each attempt gets the same salt.
"""

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from enum import IntEnum

import msgspec

MIN_ITERATIONS, DEFAULT_ITERATIONS, MAX_ITERATIONS = 4096, 8192, 16384
SALT_BYTES = 24


class Mechanism(IntEnum):
    """A SCRAM mechanism, with its number in Kafka's protocol."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def title(self) -> str:
        """The mechanism's SASL name."""
        return self.name.replace("_", "-")

    @property
    def digest(self) -> str:
        """The hash function's name."""
        return "sha256" if self is Mechanism.SCRAM_SHA_256 else "sha512"

    @classmethod
    def of(cls, title: str) -> "Mechanism":
        """Return the mechanism with that SASL name. Raises KeyError."""
        return BY_TITLE[title]


BY_TITLE = {each.title: each for each in Mechanism}


class Credential(msgspec.Struct, frozen=True):
    """A SCRAM credential as stored in Redis."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return f"Credential(iterations={self.iterations})"

    @property
    def shape(self) -> str:
        """Iterations and the salt's length and alphabet: what a client sees of a credential."""
        is_text = self.salt.isalnum() and self.salt.islower()
        return f"{self.iterations}:{len(self.salt)}:{'text' if is_text else 'bytes'}"

    def matches(self, mechanism: Mechanism, password: bytes) -> bool:
        """Return whether this is the password. Takes milliseconds of CPU time."""
        salted = hashlib.pbkdf2_hmac(mechanism.digest, password, self.salt, self.iterations)
        found = from_salted(mechanism, salted, self.salt, self.iterations)
        return hmac.compare_digest(found.stored_key, self.stored_key)


class SaltedPassword(msgspec.Struct, frozen=True):
    """A password as AlterUserScramCredentials has it."""

    iterations: int
    salt: bytes
    salted: bytes

    def __repr__(self) -> str:
        return "SaltedPassword(...)"  # it is a secret


def salt_password(mechanism: Mechanism, password: str, iterations: int) -> SaltedPassword:
    """Return the password with a new salt."""
    salt = secrets.token_bytes(SALT_BYTES)
    salted = hashlib.pbkdf2_hmac(mechanism.digest, password.encode(), salt, iterations)
    return SaltedPassword(iterations, salt, salted)


def from_password(mechanism: Mechanism, password: str, iterations: int) -> Credential:
    """Return a credential for the password with a new salt."""
    new = salt_password(mechanism, password, iterations)
    return from_salted(mechanism, new.salted, new.salt, iterations)


def from_salted(mechanism: Mechanism, salted: bytes, salt: bytes, iterations: int) -> Credential:
    """Return the credential of a salted password, which itself is not stored."""
    client_key = hmac.digest(salted, b"Client Key", mechanism.digest)
    stored_key = hashlib.new(mechanism.digest, client_key).digest()
    server_key = hmac.digest(salted, b"Server Key", mechanism.digest)
    return Credential(iterations, salt, stored_key, server_key)


def decoy(key: bytes, user: str, mechanism: Mechanism, shape: str) -> Credential:
    """Return the credential of an unknown user; no password matches it."""
    iterations, length, alphabet = shape.split(":")
    name = f"{mechanism.title}:{user}".encode()
    drawn = hashlib.shake_256(key + name).digest(int(length) + 128)
    salt, stored_key = drawn[:-128], drawn[-128:]
    if alphabet == "text":
        letters = b"0123456789abcdefghijklmnopqrstuvwxyz"
        salt = bytes(letters[byte % len(letters)] for byte in salt)
    size = hashlib.new(mechanism.digest).digest_size
    return Credential(int(iterations), salt, stored_key[:size], stored_key[64 : 64 + size])


def default_shape() -> str:
    """Return the shape of decoys before any credential was set."""
    return f"{DEFAULT_ITERATIONS}:{SALT_BYTES}:bytes"


def shape_for(key: bytes, user: str, shapes: Sequence[str]) -> str:
    """Return which of the shapes that credentials have an unknown user's decoy gets.

    A further shape changes the decoys that get it, and no others.
    """
    return max(shapes, key=lambda shape: hmac.digest(key, f"{shape}:{user}".encode(), "sha256"))


def encode(credential: Credential) -> bytes:
    """Encode the credential as stored in Redis."""
    return msgspec.json.encode(credential)


def decode(raw: bytes | None) -> Credential | None:
    """Decode a stored credential; None for none, or if another program wrote something else."""
    try:
        return msgspec.json.decode(raw, type=Credential) if raw else None
    except (ValueError, RecursionError):
        return None
