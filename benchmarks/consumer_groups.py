"""Measure consumer groups (KIP-848): the time of concurrent joins.

ConsumerGroupHeartbeat has only flexible versions: this module encodes and reads those fields.
"""

import asyncio
import struct
import time
from dataclasses import dataclass, field

from korvet.testing.bench import frames
from korvet.testing.bench.connection import Connection
from korvet.testing.bench.load import Target, connections, cpu_seconds, topic

CONSUMER_GROUP_HEARTBEAT = 68
REBALANCE_MS = 60_000
NULL = b"\0"
"""A null string or array in a flexible version."""

Owned = dict[bytes, list[int]]
"""Partitions by topic id."""


def _count(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _text(value: str) -> bytes:
    raw = value.encode()
    return _count(len(raw) + 1) + raw


def _owned(owned: Owned) -> bytes:
    rows = [
        topic + _count(len(numbers) + 1) + struct.pack(f">{len(numbers)}i", *numbers) + b"\0"
        for topic, numbers in owned.items()
    ]
    return _count(len(rows) + 1) + b"".join(rows)


class _Reader:
    """A reader of a reply's fields in their order."""

    def __init__(self, reply: bytes) -> None:
        self._reply, self._at = reply, 5

    def take(self, form: str) -> int:
        (value,) = struct.unpack_from(form, self._reply, self._at)
        self._at += struct.calcsize(form)
        return int(value)

    def count(self) -> int:
        value = shift = 0
        while True:
            byte = self._reply[self._at]
            self._at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value - 1
            shift += 7

    def raw(self, size: int) -> bytes:
        self._at += max(size, 0)
        return self._reply[self._at - max(size, 0) : self._at]

    def owned(self) -> Owned:
        found: Owned = {}
        for _ in range(self.count()):
            topic = self.raw(16)
            found[topic] = [self.take(">i") for _ in range(self.count())]
            self.raw(1)
        return found


@dataclass(slots=True)
class Member:
    """A member with a connection to itself that acknowledges its assignment at once."""

    connection: Connection
    group: str
    name: str
    topic: str
    epoch: int = 0
    owned: Owned = field(default_factory=dict)
    heartbeats: int = 0

    async def heartbeat(self) -> tuple[float, bool]:
        """Send a heartbeat; return its interval in seconds and whether an assignment came."""
        reply = _Reader(await self.connection.ask(self._request()))
        self.heartbeats += 1
        reply.take(">i")
        error = reply.take(">h")
        reply.raw(reply.count())
        if error:
            raise frames.Refused(f"ConsumerGroupHeartbeat: error code {error}")
        reply.raw(reply.count())
        self.epoch = reply.take(">i")
        pause = reply.take(">i") / 1000
        assigned = reply.take(">b") >= 0
        if assigned:
            self.owned = reply.owned()
        return pause, assigned

    def _request(self) -> bytes:
        joins = self.epoch == 0
        body = _text(self.group) + _text(self.name) + struct.pack(">i", self.epoch) + 2 * NULL
        body += struct.pack(">i", REBALANCE_MS if joins else -1)
        body += b"\2" + _text(self.topic) if joins else NULL
        body += 2 * NULL + _owned(self.owned) + b"\0"
        return frames.frame(CONSUMER_GROUP_HEARTBEAT, 1, b"\0" + body)

    @property
    def size(self) -> int:
        return sum(map(len, self.owned.values()))


@dataclass(frozen=True, slots=True)
class Settle:
    """A join of `count` members, each on a separate connection, into an empty group at once."""

    count: int = 100
    partitions: int = 300

    async def run(self, target: Target) -> dict[str, float]:
        """Measure the seconds until all members have their share at one epoch.

        Members keep the heartbeat interval that the broker returns.
        """
        group = f"bench-{time.time_ns() // 1_000_000:x}"
        async with (
            topic(target, "bench-consumer-group", self.partitions) as name,
            connections(target, self.count) as opened,
        ):
            members = [Member(one, group, f"m{at:03}", name) for at, one in enumerate(opened)]
            cpu, begin = cpu_seconds(target.pids), time.perf_counter()
            done = asyncio.Event()
            tasks = [asyncio.create_task(self._run_member(one, members, done)) for one in members]
            await asyncio.wait_for(done.wait(), 120)
            seconds = time.perf_counter() - begin
            spent = cpu_seconds(target.pids) - cpu
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return {
            "members": self.count,
            "partitions": self.partitions,
            "seconds_to_settle": round(seconds, 3),
            "heartbeats": sum(member.heartbeats for member in members),
            "broker_cpu_s": round(spent, 3),
        }

    async def _run_member(self, member: Member, members: list[Member], done: asyncio.Event) -> None:
        while not done.is_set():
            pause, assigned = await member.heartbeat()
            if self._is_settled(members):
                done.set()
            # A member acknowledges a revocation at once.
            await asyncio.sleep(0 if assigned else pause)

    def _is_settled(self, members: list[Member]) -> bool:
        share = self.partitions // self.count
        return len({member.epoch for member in members}) == 1 and all(
            share <= member.size <= share + 1 for member in members
        )
