"""A script with its keys and arguments: what to run, and how to decode the reply.

This module sends nothing. The stores and the tests' runner all take the same `Call`.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Generic, TypeAlias, TypeVar, dataclass_transform
from urllib.parse import quote_from_bytes, unquote_to_bytes

import msgspec

from korvet.base.errors import ErrorCode
from korvet.scripts import bundle
from korvet.scripts.contract import Contract

Arg: TypeAlias = bytes | bytearray | memoryview | str | int

_PLAIN = "/+=@,;!*()'\" "
"""What stays as it is, as letters, digits and `._-~` do."""


class ContractBroken(Exception):
    """A reply does not have the shape of its contract: a bug in Korvet."""


@dataclass_transform(frozen_default=True)
class Reply(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The base of all replies: the fields are the script's RETURNS, in order."""


class ErrorReply(Reply):
    """The reply of a script that returns an error code only."""

    error: int


class VersionReply(Reply):
    """`version` is the table's version after the change, -1 on an error."""

    error: int
    version: int


R = TypeVar("R", bound=Reply)
R_co = TypeVar("R_co", bound=Reply, covariant=True)


class Script(Generic[R_co]):
    """A script by name, and the type of its reply. Its text is read at first use.

    `root` is the directory of a script that is not Korvet's.
    """

    def __init__(self, name: str, reply: type[R_co], root: Path | None = None) -> None:
        self.name = name
        self.reply = reply
        self.root = root

    def __repr__(self) -> str:
        return f"Script({self.name!r})"

    @cached_property
    def bundle(self) -> bundle.Bundle:
        return bundle.load(self.name, self.root)

    @cached_property
    def text(self) -> str:
        return self.bundle.text

    @cached_property
    def sha1(self) -> str:
        return self.bundle.sha1

    @cached_property
    def version(self) -> int:
        return self.bundle.version

    @cached_property
    def contract(self) -> Contract:
        return self.bundle.contract

    @cached_property
    def writes(self) -> bool:
        return self.contract.writes


def flat(rows: Iterable[Sequence[Arg]]) -> Iterator[Arg]:
    """Return the arguments of repeated ARGV: the values of one row after another."""
    return chain.from_iterable(rows)


def encode_group(group_id: str) -> str:
    """Percent-encode `%`, `{`, `}`, `:`, control bytes and non-ASCII bytes of a group id."""
    return quote_from_bytes(group_id.encode("utf-8", "surrogateescape"), _PLAIN)


def decode_group(encoded: str) -> str:
    """Return the group id that `encode_group` encoded."""
    return unquote_to_bytes(encoded).decode("utf-8", "surrogateescape")


class Call(msgspec.Struct, Generic[R_co], frozen=True, gc=False):
    """A run of a script, before it runs.

    An argument that is a buffer is passed to the socket as it is: it must not change until the call
    is answered. Buffers are contiguous and count in bytes.
    """

    script: Script[R_co]
    keys: tuple[str, ...]
    args: Sequence[Arg] = ()

    def decode(self, raw: object) -> R_co:
        """Return the reply as its type. Raises ContractBroken."""
        try:
            return msgspec.convert(raw, self.script.reply)
        except msgspec.ValidationError as error:
            name, version = self.script.name, self.script.version
            raise ContractBroken(f"reply of {name} v{version}: {error}") from error


class Signal(IntEnum):
    """A code that a script answers in place of a Kafka error; the broker acts on it.

    The numbers are outside Kafka's range and equal those of `lua/lib/codes.lua`: no client receives
    one, and one that is taken for a Kafka error is an unknown number.
    """

    TICK_FIRST = 1001
    """A deadline of the group has passed: run group.tick, then call again."""
    REGISTER_FIRST = 1002
    """The call creates the group: run group.register, then call again with `is_registered`."""
    GROUP_CHANGED = 1003
    """The group is not the one that the caller read: describe it, then call again."""
    TOPIC_CHANGED = 1004
    """The topic or the group registry changed after the caller read it: read it, decide again."""
    CONFIGS_CHANGED = 1005
    """The configs changed after the caller read them: read them, decide again."""
    START_FIRST = 1006
    """The share group has no state in the partition: resolve its start offset, then call again."""


_SIGNALS = frozenset(Signal)


def name_of(code: int) -> str:
    """Return the name of an error code or a signal."""
    return (Signal(code) if code in _SIGNALS else ErrorCode(code)).name
