"""Users and their SCRAM credentials, read from Redis at each authentication.

A read takes one round trip and is always current: a change is in effect on all brokers at once.
"""

import secrets
from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from korvet.base.errors import ErrorCode
from korvet.scripts.call import Reply
from korvet.scripts.keys import Keys
from korvet.security import credentials
from korvet.security.credentials import BY_TITLE, Credential, Mechanism
from korvet.store.calls import AsyncCalls

R = TypeVar("R", bound=Reply)
ANY, ABSENT, PRESENT = "", "absent", "present"
"""Conditions of a change: none, the user has none of the credentials, or at least one."""


class KnownOrDecoy(msgspec.Struct, frozen=True):
    """The credential to check a client with; a decoy if the user is not known."""

    mechanism: Mechanism
    credential: Credential
    is_known: bool


class Users:
    """Reads and changes the users of one namespace."""

    def __init__(self, store: AsyncCalls, keys: Keys) -> None:
        self._store = store
        self._keys = keys
        self._decoy_key: bytes | None = None

    async def find(self, user: str, mechanisms: Sequence[Mechanism]) -> KnownOrDecoy:
        """Return the user's credential for the first of these mechanisms that has one.

        The time does not depend on whether the user exists.
        """
        if self._decoy_key is None:
            self._decoy_key = await self._load_decoy_key()
        fields = [f"{each.title}:{user}" for each in mechanisms]
        shapes = [f":shape:{each.title}" for each in mechanisms]
        raws = await self._store.command("HMGET", self._keys.users(), *fields, *shapes)
        rows = list(zip(mechanisms, raws[: len(fields)], raws[len(fields) :], strict=True))
        drawn = [
            credentials.decoy(
                self._decoy_key,
                user,
                each,
                credentials.shape_for(
                    self._decoy_key,
                    user,
                    shapes.decode().split(",") if shapes else [credentials.default_shape()],
                ),
            )
            for each, _, shapes in rows
        ]
        for each, raw, _ in rows:
            credential = credentials.decode(raw)
            if credential is not None:
                return KnownOrDecoy(each, credential, True)
        return KnownOrDecoy(mechanisms[0], drawn[0], False)

    async def _load_decoy_key(self) -> bytes:
        call = self._keys.user_init_decoy_key(decoy_key=secrets.token_bytes(32))
        return (await self._store.run(call)).decoy_key

    async def alter(
        self, user: str, changes: Mapping[Mechanism, Credential | None], condition: str = ANY
    ) -> ErrorCode:
        """Set credentials of the user, or delete those that are None."""
        rows = [
            (each.title, credentials.encode(new), new.shape) if new else (each.title, b"", "")
            for each, new in changes.items()
        ]
        reply = await self._store.run(self._keys.user_alter(rows, user=user, condition=condition))
        return ErrorCode(reply.error)

    async def list(self) -> dict[str, dict[Mechanism, int]]:
        """Return the iterations of every user's credentials, by name and mechanism."""
        flat = await self._store.command("HGETALL", self._keys.users())
        users: dict[str, dict[Mechanism, int]] = {}
        for field, raw in zip(flat[::2], flat[1::2], strict=True):
            title, _, user = field.decode("utf-8", "surrogateescape").partition(":")
            credential = credentials.decode(raw) if title in BY_TITLE else None
            if credential is not None:
                users.setdefault(user, {})[BY_TITLE[title]] = credential.iterations
        return {user: dict(sorted(users[user].items())) for user in sorted(users)}

    async def describe(self, names: Sequence[str]) -> dict[str, dict[Mechanism, int]]:
        """Return the iterations of these users' credentials; unknown users have none."""
        fields = [f"{each.title}:{name}" for name in names for each in Mechanism]
        if not fields:
            return {}
        raws = iter(await self._store.command("HMGET", self._keys.users(), *fields))
        return {
            name: {
                each: credential.iterations
                for each in Mechanism
                if (credential := credentials.decode(next(raws))) is not None
            }
            for name in names
        }
