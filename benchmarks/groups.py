"""Measure classic groups: concurrent joins, heartbeats of stable groups, offset commits.

Requests have the last versions before flexible headers, as in `frames`.
"""

import asyncio
import struct
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from random import Random

from korvet.testing.bench import frames
from korvet.testing.bench.connection import SMALL, Connection
from korvet.testing.bench.load import (
    Pump,
    Tally,
    Target,
    connections,
    cpu_seconds,
    drain,
    measured,
    topic,
)

OFFSET_COMMIT, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 8, 11, 12, 13, 14
REBALANCE_IN_PROGRESS = 27
SESSION_MS = 60_000
CHECK_INTERVAL_S = 0.1
"""Interval in which a joined member checks for a rebalance."""


def _bytes(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


@dataclass(slots=True)
class Member:
    """A member of a group with a connection to itself."""

    connection: Connection
    group: str
    member_id: str = ""
    generation: int = -1
    roster: int = 0

    async def join(self) -> None:
        """Join the group and get an assignment (JoinGroup, SyncGroup)."""
        while True:
            members = await self._join()
            if await self._sync(members) != REBALANCE_IN_PROGRESS:
                return

    async def _join(self) -> list[str]:
        body = frames.text(self.group) + struct.pack(">ii", SESSION_MS, SESSION_MS)
        body += frames.text(self.member_id) + frames.text("consumer") + struct.pack(">i", 1)
        body += frames.text("range") + _bytes(b"\0" * 32)
        reply = await self.connection.ask(frames.frame(JOIN_GROUP, 3, body))
        error, self.generation = struct.unpack_from(">hi", reply, 8)
        if error:
            raise frames.Refused(f"JoinGroup: error code {error}")
        words, at = [], 14
        for _ in range(3):
            word, at = _text(reply, at)
            words.append(word)
        self.member_id = words[2]
        (count,) = struct.unpack_from(">i", reply, at)
        members, at = [], at + 4
        for _ in range(count):
            member, at = _text(reply, at)
            (size,) = struct.unpack_from(">i", reply, at)
            members.append(member)
            at += 4 + size
        self.roster = count
        return members

    async def _sync(self, members: Sequence[str]) -> int:
        body = frames.text(self.group) + struct.pack(">i", self.generation)
        body += frames.text(self.member_id) + struct.pack(">i", len(members))
        for member in members:
            body += frames.text(member) + _bytes(b"\0" * 32)
        reply = await self.connection.ask(frames.frame(SYNC_GROUP, 1, body))
        (error,) = struct.unpack_from(">h", reply, 8)
        if error not in (frames.NO_ERROR, REBALANCE_IN_PROGRESS):
            raise frames.Refused(f"SyncGroup: error code {error}")
        return int(error)

    def heartbeat(self) -> bytes:
        """Encode the Heartbeat request."""
        body = frames.text(self.group) + struct.pack(">i", self.generation)
        return frames.frame(HEARTBEAT, 1, body + frames.text(self.member_id))

    async def is_in_generation(self) -> bool:
        """Send a heartbeat and return whether the generation is still valid."""
        reply = await self.connection.ask(self.heartbeat())
        (error,) = struct.unpack_from(">h", reply, 8)
        return int(error) == frames.NO_ERROR

    async def leave(self) -> None:
        """Leave the group (LeaveGroup)."""
        body = frames.text(self.group) + frames.text(self.member_id)
        await self.connection.ask(frames.frame(LEAVE_GROUP, 1, body))


def _text(reply: bytes, at: int) -> tuple[str, int]:
    (size,) = struct.unpack_from(">h", reply, at)
    return reply[at + 2 : at + 2 + size].decode(), at + 2 + size


async def settle(joined: Sequence[Member]) -> None:
    """Join all members, and rejoin them until they are in one generation."""
    done = asyncio.Event()

    async def stay(member: Member) -> None:
        await member.join()
        while not done.is_set():
            if len(joined) == max(s.roster for s in joined) and _one_generation(joined):
                done.set()
            elif await member.is_in_generation():
                await asyncio.sleep(CHECK_INTERVAL_S)
            else:
                await member.join()

    await asyncio.gather(*(stay(member) for member in joined))


def _one_generation(joined: Sequence[Member]) -> bool:
    return len({member.generation for member in joined}) == 1


@asynccontextmanager
async def members(
    opened: Sequence[Connection], size: int
) -> AsyncIterator[tuple[list[Member], list[float]]]:
    """Join a member per connection, in groups of `size`; yield them and each group's seconds."""
    stamp = f"{time.time_ns() // 1_000_000:x}"
    joined: list[Member] = []
    took: list[float] = []
    for first in range(0, len(opened), size):
        new = [Member(one, f"bench-{stamp}-{first}") for one in opened[first : first + size]]
        begin = time.perf_counter()
        await settle(new)
        took.append(time.perf_counter() - begin)
        joined += new
    yield joined, took
    for member in joined:
        await member.leave()


@dataclass(frozen=True, slots=True)
class Join:
    """A join of `count` members, each on a separate connection, into an empty group at once."""

    count: int = 50

    async def run(self, target: Target) -> dict[str, float]:
        """Return the seconds until all members have assignments in one generation."""
        async with (
            connections(target, self.count) as opened,
            members(opened, self.count) as (_, took),
        ):
            return {"members": self.count, "seconds_to_settle": round(took[0], 3)}


@dataclass(frozen=True, slots=True)
class Heartbeats:
    """Heartbeats of stable groups: each member sends one every `every_s` at a random phase."""

    groups: int = 20
    size: int = 50
    every_s: float = 3.0
    rounds: int = 5
    seed: int = 1

    async def run(self, target: Target) -> dict[str, float]:
        """Return the share of one core that broker and Redis use, and the heartbeats' latency."""
        random = Random(self.seed)
        async with (
            connections(target, self.groups * self.size, SMALL) as opened,
            members(opened, self.size) as (joined, _),
        ):
            waits: list[float] = []
            cpu, begin = cpu_seconds(target.pids), time.perf_counter()
            phases = [begin + random.uniform(0, self.every_s) for _ in joined]
            await asyncio.gather(*map(partial(self._beat, waits), joined, phases))
            seconds = time.perf_counter() - begin
            spent = cpu_seconds(target.pids) - cpu
        waits.sort()
        return {
            "members": len(joined),
            "heartbeats_per_s": round(len(waits) / seconds),
            "core_share": round(spent / seconds, 3),
            "ack_p50_ms": round(1000 * waits[len(waits) // 2], 2),
            "ack_p99_ms": round(1000 * waits[len(waits) * 99 // 100], 2),
        }

    async def _beat(self, waits: list[float], member: Member, moment: float) -> None:
        for number in range(self.rounds):
            due = moment + number * self.every_s
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            begin = time.perf_counter()
            if not await member.is_in_generation():
                raise frames.Refused(
                    f"Heartbeat of {member.member_id} in {member.group}: the group rebalances"
                )
            waits.append(time.perf_counter() - begin)


@dataclass(frozen=True, slots=True)
class Commits:
    """Offset commits of one partition by groups without members, over `width` connections."""

    width: int = 10

    async def run(self, target: Target) -> Tally:
        """Commit until the time limit."""
        tally = Tally()
        async with (
            topic(target, "bench-commits", self.width) as name,
            connections(target, self.width) as opened,
        ):
            pumps = []
            until = time.perf_counter() + target.seconds

            def following(frame: bytes) -> Callable[[], bytes | None]:
                return lambda: frame if time.perf_counter() < until else None

            def received(reply: memoryview) -> None:
                (error,) = struct.unpack_from(">h", reply, len(reply) - 2)
                if error:
                    raise frames.Refused(f"OffsetCommit: error code {error}")
                tally.requests += 1

            for number, connection in enumerate(opened):
                frame = _commit(f"{name}-{number}", name, number)
                pumps.append(Pump(connection, following(frame), received))
            async with measured(target, tally):
                await drain(pumps)
        tally.records = tally.payload = tally.requests
        return tally


def _commit(group: str, name: str, partition: int) -> bytes:
    body = frames.text(group) + struct.pack(">i", -1) + frames.text("") + struct.pack(">i", 1)
    body += frames.text(name) + struct.pack(">iiq", 1, partition, 1) + frames.text("")
    return frames.frame(OFFSET_COMMIT, 5, body)
