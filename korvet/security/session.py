"""Principals, the session of a connection, and the steps of a SASL mechanism that begin it."""

from collections.abc import Callable
from typing import Protocol

import msgspec


class Principal(msgspec.Struct, frozen=True):
    """An identity, written `User:alice` as in Kafka's ACLs."""

    type: str
    name: str

    @classmethod
    def parse(cls, text: str) -> "Principal":
        """Return the principal that `TYPE:NAME` names. Raises ValueError."""
        kind, colon, name = text.partition(":")
        if not (kind and colon and name):
            raise ValueError(f"a principal must be TYPE:NAME, for example User:alice, not {text!r}")
        return cls(kind, name)

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")
"""The principal of a client that has not authenticated."""


class Session(msgspec.Struct):
    """Identity and address of the client of a connection.

    `principal` changes when the client authenticates.
    """

    client_host: str
    principal: Principal = ANONYMOUS
    listener: str = "PLAINTEXT"
    """Name of the listener that the client connected to."""
    protocol: str = "PLAINTEXT"
    """Security protocol of that listener: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""
    opened_bytes: int = 0
    """Bytes that the batches of the current Produce request have decompressed, for quotas."""
    mutation_ms: int = 0
    """Time to wait for the quota that the current request's new partitions used."""
    on_close: list[Callable[[], None]] = []
    """Called once when the connection is closed."""
    transactions: dict[int, int] = {}
    """The number of the last transaction that the client added members to on this connection, by
    the hash of transactional id, producer id and epoch: an id may have 32 KB."""

    def count_opened(self, size: int) -> None:
        """Count decompressed bytes."""
        self.opened_bytes += size


class Identity(msgspec.Struct, frozen=True):
    """An authenticated user. `expires_at`: end of the client's token, seconds since 1970."""

    user: str
    expires_at: float | None = None


class Step(msgspec.Struct, frozen=True):
    """The broker's token; `identity` is set by the last step."""

    token: bytes
    identity: Identity | None = None


class Exchange(Protocol):
    """The server's side of a SASL mechanism, for one attempt of a client."""

    async def step(self, token: bytes) -> Step:
        """Process the client's token. Raises AuthenticationFailed."""


class AuthenticationFailed(Exception):
    """The client did not authenticate. The message is for the client, `reason` for the log.

    `user` is the name of a user that exists. Other names are not logged: a client may send its
    password in place of the name.
    """

    def __init__(self, message: str, reason: str, user: str | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.user = user
