"""A streams group driven by its scripts alone, and members that follow their tasks."""

from typing import Any

from korvet.base.errors import ErrorCode
from korvet.groups.modern import encode_subscription, pack, pack_bytes
from korvet.groups.streams_group import decode_tasks, encode_pairs
from korvet.scripts.calls.group import ModernDescribeReply, StreamsHeartbeatReply
from korvet.scripts.keys import Keys
from tests.lua.groups import ModernGroup
from tests.support.store_runners import Runner

KEYS = Keys()
K = KEYS.group("g")
SESSION_MS = ModernGroup.session_ms
Info = tuple[str, int]


def infos(rows: list[Info]) -> bytes:
    """Encode internal topics: name, partitions."""
    return pack_bytes(pack([name, str(count), "0", ""]) for name, count in rows)


def subtopology(
    id: str,
    sources: list[str],
    sinks: list[str] | None = None,
    repartition: list[Info] | None = None,
    changelogs: list[str] | None = None,
    together: list[list[str]] | None = None,
) -> bytes:
    """Encode a subtopology as scripts expect it."""
    return pack_bytes(
        (
            id.encode().hex().encode(),
            pack(sources),
            pack(sinks or []),
            infos(repartition or []),
            infos([(name, 0) for name in changelogs or []]),
            pack_bytes(pack(group) for group in together or []),
        )
    )


def topology(*subtopologies: bytes) -> bytes:
    """Encode a topology as scripts expect it."""
    return pack_bytes(subtopologies)


PLAIN = topology(subtopology("0", ["t"]))
COUNTING = topology(
    subtopology("0", ["t"], sinks=["r"]),
    subtopology("1", [], repartition=[("r", 0)], changelogs=["c"]),
)
"""The topology of a word count: a repartition topic `r`, a store with the changelog `c`."""
STATEFUL = topology(subtopology("0", ["t"], changelogs=["c"]))


class Group(ModernGroup):
    """A streams group, and the topics that exist."""

    def __init__(
        self, runner: Runner, topology: bytes = PLAIN, keys: Keys = KEYS, **sizes: int
    ) -> None:
        super().__init__(runner, keys)
        self.topology = topology
        self.sizes = sizes or {"t": 4}
        self.created: list[tuple[str, int]] = []
        self.creates = True

    def beat(
        self, member: str, epoch: int, owned: set[str] | None = None, **changes: Any
    ) -> StreamsHeartbeatReply:
        """Send a heartbeat, repeated with topics, and with internal topics created, if needed."""
        joins = epoch == 0
        if joins and owned is None:
            owned = set()
        words: dict[str, Any] = {
            "rack": "",
            "client_id": "c",
            "client_host": "/h",
            "session_ms": SESSION_MS,
            "rebalance_ms": 60_000 if joins else -1,
            "interval_ms": 0,
            "delay_ms": 0,
            "replicas": 0,
            "max_size": 100,
            "max_bytes": 1_000_000,
            "is_registered": 1,
            "topology_epoch": 0 if joins else -1,
            "topology": self.topology if joins else b"",
            "has_process": int(joins),
            "process": f"p-{member}" if joins else "",
            "endpoint": "",
            "has_tags": int(joins),
            "tags": encode_pairs([]),
            "has_owned": int(owned is not None),
            "owned": ";".join(sorted(owned or ())).encode(),
            "endpoint_epoch": 0,
            "shutdown": 0,
            "instance": "",
        } | changes
        seen: dict[str, Any] = {"resolved": b"", "rows": (), "creates": int(self.creates)}
        while True:
            version = b"%d" % self.version
            given = {**words, **seen, "topics_version": version}
            call = self.keys.streams_heartbeat(member=member, epoch=epoch, **given)
            reply: StreamsHeartbeatReply = self.send(call)
            if reply.missing:
                self._create(reply.missing)
                seen = {"resolved": b"", "rows": (), "creates": 0}
            elif reply.need_topics:
                wanted = [name.decode() for name in reply.names]
                rows = [
                    ("t", name, f"{(name.encode().hex() * 8)[:32]}:{self.sizes[name]}")
                    for name in wanted
                    if name in self.sizes
                ]
                seen |= {"resolved": encode_subscription(reply.names), "rows": rows}
            else:
                return reply

    def _create(self, missing: list[bytes]) -> None:
        for name, count in zip(missing[::4], missing[1::4], strict=True):
            self.created.append((name.decode(), int(count)))
            self.sizes[name.decode()] = int(count)
        self.version += 1

    def describe(self) -> ModernDescribeReply:
        """Return the group with its members."""
        return self.runner.run(self.keys.modern_describe(type="streams"))

    def epoch(self, member: str) -> int:
        """Return the member's epoch."""
        rows = self.describe().members
        return int(rows[rows.index(member.encode()) + 5])

    def size(self, name: str, partitions: int | None) -> None:
        """Set the number of partitions of a topic, or delete the topic."""
        self.version += 1
        self.sizes.pop(name, None)
        if partitions is not None:
            self.sizes[name] = partitions


def held(reply: StreamsHeartbeatReply) -> set[str]:
    """Return the tasks of an assignment as scripts write them, such as a30:0."""
    return split(reply.assignment)


def split(encoded: bytes) -> set[str]:
    """Return the single tasks of an encoded assignment."""
    return {
        f"{kind}{sub.encode().hex()}:{number}"
        for kind, by_sub in decode_tasks(encoded).items()
        for sub, numbers in by_sub.items()
        for number in numbers
    }


def statuses(reply: StreamsHeartbeatReply) -> list[int]:
    """Return the codes of the statuses."""
    return [int(code) for code in reply.statuses[::2]]


class Member:
    """A client that follows its assignment at once."""

    def __init__(self, group: Group, name: str, **joining: Any) -> None:
        self.group, self.name = group, name
        self.held: set[str] = set()
        self.epoch = 0
        self.joining = joining
        self.statuses: list[int] = []

    def step(self, **words: Any) -> ErrorCode:
        """Send one heartbeat, and revoke tasks at once."""
        joining = self.joining if self.epoch == 0 else {}
        owned = self.held if self.epoch else set()
        reply = self.group.beat(self.name, self.epoch, owned, **{**joining, **words})
        if reply.error:
            self.epoch, self.held = 0, set()
            return ErrorCode(reply.error)
        self.epoch, self.statuses = reply.epoch, statuses(reply)
        if reply.has_assignment:
            self.held = held(reply)
        return ErrorCode.NONE


def settle(members: list[Member], **words: Any) -> None:
    """Send heartbeats until all members have converged."""
    for _ in range(6):
        for member in members:
            assert member.step(**words) == ErrorCode.NONE
