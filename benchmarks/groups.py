"""Groups: members that join at once, heartbeats at rest, commits as fast as they go.

Requests are of the last versions before flexible headers, as in `frames`.
"""

import asyncio
import struct
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from random import Random

from benchmarks import frames, processes
from benchmarks.connection import SMALL, Connection
from benchmarks.load import Pump, Tally, Target, connections, drain, measured, topic

OFFSET_COMMIT, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 8, 11, 12, 13, 14
REBALANCE_IN_PROGRESS = 27
SESSION_MS = 60_000
LOOK_S = 0.1
"""How often a member that joins looks whether others have come."""


def _bytes(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


@dataclass(slots=True)
class Seat:
    """One member of a group, on a connection of its own."""

    connection: Connection
    group: str
    member: str = ""
    generation: int = -1
    roster: int = 0

    async def join(self) -> None:
        """The member has its assignment in some generation."""
        while True:
            members = await self._join()
            if await self._sync(members) != REBALANCE_IN_PROGRESS:
                return

    async def _join(self) -> list[str]:
        body = frames.text(self.group) + struct.pack(">ii", SESSION_MS, SESSION_MS)
        body += frames.text(self.member) + frames.text("consumer") + struct.pack(">i", 1)
        body += frames.text("range") + _bytes(b"\0" * 32)
        reply = await self.connection.ask(frames.frame(JOIN_GROUP, 3, body))
        error, self.generation = struct.unpack_from(">hi", reply, 8)
        if error:
            raise frames.Refused(f"JoinGroup: error code {error}")
        words, at = [], 14
        for _ in range(3):
            word, at = _text(reply, at)
            words.append(word)
        self.member = words[2]
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
        body += frames.text(self.member) + struct.pack(">i", len(members))
        for member in members:
            body += frames.text(member) + _bytes(b"\0" * 32)
        reply = await self.connection.ask(frames.frame(SYNC_GROUP, 1, body))
        (error,) = struct.unpack_from(">h", reply, 8)
        if error not in (frames.NO_ERROR, REBALANCE_IN_PROGRESS):
            raise frames.Refused(f"SyncGroup: error code {error}")
        return int(error)

    def heartbeat(self) -> bytes:
        """The request."""
        body = frames.text(self.group) + struct.pack(">i", self.generation)
        return frames.frame(HEARTBEAT, 1, body + frames.text(self.member))

    async def alive(self) -> bool:
        """Whether the generation still stands."""
        reply = await self.connection.ask(self.heartbeat())
        (error,) = struct.unpack_from(">h", reply, 8)
        return int(error) == frames.NO_ERROR

    async def leave(self) -> None:
        body = frames.text(self.group) + frames.text(self.member)
        await self.connection.ask(frames.frame(LEAVE_GROUP, 1, body))


def _text(reply: bytes, at: int) -> tuple[str, int]:
    (size,) = struct.unpack_from(">h", reply, at)
    return reply[at + 2 : at + 2 + size].decode(), at + 2 + size


async def settle(seats: Sequence[Seat]) -> None:
    """All are in one generation, each having joined again as often as others came."""
    done = asyncio.Event()

    async def stay(seat: Seat) -> None:
        await seat.join()
        while not done.is_set():
            if len(seats) == max(s.roster for s in seats) and _one_generation(seats):
                done.set()
            elif await seat.alive():
                await asyncio.sleep(LOOK_S)
            else:
                await seat.join()

    await asyncio.gather(*(stay(seat) for seat in seats))


def _one_generation(seats: Sequence[Seat]) -> bool:
    return len({seat.generation for seat in seats}) == 1


@asynccontextmanager
async def members(
    opened: Sequence[Connection], size: int
) -> AsyncIterator[tuple[list[Seat], list[float]]]:
    """A member on each connection, in groups of `size`; and the seconds each took to settle."""
    stamp = f"{time.time_ns() // 1_000_000:x}"
    seats: list[Seat] = []
    took: list[float] = []
    for first in range(0, len(opened), size):
        new = [Seat(one, f"bench-{stamp}-{first}") for one in opened[first : first + size]]
        begin = time.perf_counter()
        await settle(new)
        took.append(time.perf_counter() - begin)
        seats += new
    yield seats, took
    for seat in seats:
        await seat.leave()


@dataclass(frozen=True, slots=True)
class Join:
    """So many members, each on its own connection, join an empty group at once."""

    count: int = 50

    async def run(self, target: Target) -> dict[str, float]:
        """Seconds until they are one generation with assignments."""
        async with (
            connections(target, self.count) as opened,
            members(opened, self.count) as (_, took),
        ):
            return {"members": self.count, "seconds_to_settle": round(took[0], 3)}


@dataclass(frozen=True, slots=True)
class Heartbeats:
    """Members at rest: each on its own connection, heard of every `every_s`, whenever it began."""

    groups: int = 20
    size: int = 50
    every_s: float = 3.0
    rounds: int = 5
    seed: int = 1

    async def run(self, target: Target) -> dict[str, float]:
        """The share of one core that the broker and its Redis spend on them, and how long a
        heartbeat waits for its answer."""
        random = Random(self.seed)
        async with (
            connections(target, self.groups * self.size, SMALL) as opened,
            members(opened, self.size) as (seats, _),
        ):
            waits: list[float] = []
            cpu, begin = processes.cpu_seconds(target.pids), time.perf_counter()
            phases = [begin + random.uniform(0, self.every_s) for _ in seats]
            await asyncio.gather(*map(partial(self._beat, waits), seats, phases))
            seconds = time.perf_counter() - begin
            spent = processes.cpu_seconds(target.pids) - cpu
        waits.sort()
        return {
            "members": len(seats),
            "heartbeats_per_s": round(len(waits) / seconds),
            "core_share": round(spent / seconds, 3),
            "ack_p50_ms": round(1000 * waits[len(waits) // 2], 2),
            "ack_p99_ms": round(1000 * waits[len(waits) * 99 // 100], 2),
        }

    async def _beat(self, waits: list[float], seat: Seat, moment: float) -> None:
        for number in range(self.rounds):
            due = moment + number * self.every_s
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            begin = time.perf_counter()
            if not await seat.alive():
                raise frames.Refused("Heartbeat: the group did not stay as it was")
            waits.append(time.perf_counter() - begin)


@dataclass(frozen=True, slots=True)
class Commits:
    """Single-partition commits by groups without members, over several connections."""

    width: int = 10

    async def run(self, target: Target) -> Tally:
        """As many as go through in the time given."""
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
