"""Groups whose broker does the assigning (KIP-848): how long many members that come at once take.

The request has only flexible versions, so this module writes and reads those few fields itself.
"""

import asyncio
import struct
import time
from dataclasses import dataclass, field

from benchmarks import frames, processes
from benchmarks.connection import Connection
from benchmarks.load import Target, connections, topic

CONSUMER_GROUP_HEARTBEAT = 68
REBALANCE_MS = 60_000
NOBODY = b"\0"

Held = dict[bytes, list[int]]
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


def _held(held: Held) -> bytes:
    rows = [
        topic + _count(len(numbers) + 1) + struct.pack(f">{len(numbers)}i", *numbers) + b"\0"
        for topic, numbers in held.items()
    ]
    return _count(len(rows) + 1) + b"".join(rows)


class _Reader:
    """The fields of a reply, one after another."""

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

    def held(self) -> Held:
        found: Held = {}
        for _ in range(self.count()):
            topic = self.raw(16)
            found[topic] = [self.take(">i") for _ in range(self.count())]
            self.raw(1)
        return found


@dataclass(slots=True)
class Member:
    """One member, on a connection of its own, that does what it is told at once."""

    connection: Connection
    group: str
    name: str
    topic: str
    epoch: int = 0
    held: Held = field(default_factory=dict)
    beats: int = 0

    async def beat(self) -> tuple[float, bool]:
        """Seconds until the next one, and whether something was told."""
        reply = _Reader(await self.connection.ask(self._request()))
        self.beats += 1
        reply.take(">i")
        error = reply.take(">h")
        reply.raw(reply.count())
        if error:
            raise frames.Refused(f"ConsumerGroupHeartbeat: error code {error}")
        reply.raw(reply.count())
        self.epoch = reply.take(">i")
        pause = reply.take(">i") / 1000
        told = reply.take(">b") >= 0
        if told:
            self.held = reply.held()
        return pause, told

    def _request(self) -> bytes:
        joins = self.epoch == 0
        body = _text(self.group) + _text(self.name) + struct.pack(">i", self.epoch) + 2 * NOBODY
        body += struct.pack(">i", REBALANCE_MS if joins else -1)
        body += b"\2" + _text(self.topic) if joins else NOBODY
        body += 2 * NOBODY + _held(self.held) + b"\0"
        return frames.frame(CONSUMER_GROUP_HEARTBEAT, 1, b"\0" + body)

    @property
    def size(self) -> int:
        return sum(map(len, self.held.values()))


@dataclass(frozen=True, slots=True)
class Settle:
    """So many members, each on its own connection, join an empty group at once."""

    count: int = 100
    partitions: int = 300

    async def run(self, target: Target) -> dict[str, float]:
        """Seconds until all have their share at one epoch, heeding the intervals they are told."""
        group = f"bench-{time.time_ns() // 1_000_000:x}"
        async with (
            topic(target, "bench-newer", self.partitions) as name,
            connections(target, self.count) as opened,
        ):
            members = [Member(one, group, f"m{at:03}", name) for at, one in enumerate(opened)]
            cpu, begin = processes.cpu_seconds(target.pids), time.perf_counter()
            done = asyncio.Event()
            tasks = [asyncio.create_task(self._stay(one, members, done)) for one in members]
            await asyncio.wait_for(done.wait(), 120)
            seconds = time.perf_counter() - begin
            spent = processes.cpu_seconds(target.pids) - cpu
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return {
            "members": self.count,
            "partitions": self.partitions,
            "seconds_to_settle": round(seconds, 3),
            "heartbeats": sum(member.beats for member in members),
            "broker_cpu_s": round(spent, 3),
        }

    async def _stay(self, member: Member, members: list[Member], done: asyncio.Event) -> None:
        while not done.is_set():
            pause, told = await member.beat()
            if self._settled(members):
                done.set()
            # Whoever was told to give something up says at once that it has.
            await asyncio.sleep(0 if told else pause)

    def _settled(self, members: list[Member]) -> bool:
        share = self.partitions // self.count
        return len({member.epoch for member in members}) == 1 and all(
            share <= member.size <= share + 1 for member in members
        )
