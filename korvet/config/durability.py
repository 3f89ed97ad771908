"""Durability of an append: the replicas and the disk that acks=-1 waits for.

The topic config `durability` names it: memory, fsync, replicas:N or fsync+replicas:N.
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from korvet.config.setting import Kind
from korvet.store.handshake import describe_server, online_replicas

_WORDS = re.compile(r"memory|fsync|(fsync\+)?replicas:([1-9]\d{0,2})", re.ASCII)
_WAITAOF_SINCE = (7, 2)


class Durability(NamedTuple):
    """Replicas of Redis that have a write, and whether its append-only file is on disk."""

    replicas: int = 0
    fsync: bool = False

    def __str__(self) -> str:
        names = ["fsync"] * self.fsync + [f"replicas:{self.replicas}"] * (self.replicas > 0)
        return "+".join(names) or "memory"

    @classmethod
    def parse(cls, text: str) -> "Durability":
        """Return the durability that the text names. Raises ValueError."""
        match = _WORDS.fullmatch(text)
        if match is None or int(match[2] or 0) > 100:
            raise ValueError("memory, fsync, replicas:N or fsync+replicas:N with N from 1 to 100")
        return cls(int(match[2] or 0), text.startswith("fsync"))

    def why_not_kept(
        self, info: Mapping[str, str], appendfsync: str = "", is_embedded: bool = False
    ) -> str:
        """Return why a server with that INFO cannot keep it; empty if it can.

        `appendfsync` is empty if it cannot be read. An embedded server's file is synced by Korvet.
        """
        online = online_replicas(info)
        if self.fsync and info.get("aof_enabled") != "1":
            return "its append-only file is off (CONFIG SET appendonly yes)"
        if self.fsync and not is_embedded:
            server = describe_server(info)
            numbers = info.get("redis_version", "0").split(".")[:2]
            if tuple(map(int, numbers)) < _WAITAOF_SINCE:
                return f"{server.name} {server.version} has no WAITAOF: that needs Redis 7.2"
            if appendfsync == "no":
                return "its appendfsync is no: WAITAOF would wait without end"
        if online < self.replicas:
            return f"{online} of {self.replicas} replicas are connected"
        return ""


class DurabilityType(msgspec.Struct, frozen=True):
    """The type of the topic config."""

    kind: Kind = Kind.STRING

    def parse(self, text: str) -> str:
        return str(Durability.parse(text))


def strictest(some: Iterable[Durability | None]) -> Durability | None:
    """Return what includes all of these; None if nothing is waited for."""
    found = [each for each in some if each is not None]
    replicas = max((each.replicas for each in found), default=0)
    fsync = any(each.fsync for each in found)
    return Durability(replicas, fsync) if replicas or fsync else None
