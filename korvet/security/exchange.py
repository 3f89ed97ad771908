"""The steps of a SASL mechanism between a client and the broker."""

from typing import Protocol

import msgspec


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
