"""The registry of probes, and the values that several of them use."""

from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

from korvet.wire.schema import Message

UNKNOWN_ID = UUID(int=0x1234567890ABCDEF1234567890ABCDEF)
BOTH = "topic=t1 topic=t2"
"""Both topics."""
NO_PRODUCER = 9_999_999
"""A producer id that no transactional id has."""


class Ids(NamedTuple):
    """Topic ids of the scene."""

    t1: UUID
    gone: UUID


class Probe(NamedTuple):
    """A request in one version, with the rules it needs and the resources it touches."""

    name: str
    version: int
    build: Callable[[Ids], Message]
    needs: tuple[str, ...]
    resources: tuple[str, ...]
    creates: str | None = None
    """Topic to create before each case."""
    removes: str | None = None
    """Topic to delete after each case."""


PROBES: dict[str, Probe] = {}


def probe(
    name: str,
    version: int,
    build: Callable[[Ids], Message] | Message,
    needs: str = "",
    resources: str = "",
    **more: Any,
) -> None:
    """Register a probe: `needs` without signs, `resources` if `needs` does not name them all."""
    rules = needs.split()
    touched = [*(rule.partition(":")[0] for rule in rules), *resources.split()]
    assert name not in PROBES, name
    PROBES[name] = Probe(
        name,
        version,
        build if callable(build) else lambda ids: build,
        tuple(f"+{rule}" for rule in rules),
        tuple(dict.fromkeys(touched)),
        **more,
    )
