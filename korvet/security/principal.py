"""Principals: the identities that listeners authenticate."""

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
