"""Measure the highest rates of Produce and Fetch; the rows of `korvet bench`."""

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from korvet.testing.bench import frames
from korvet.testing.bench.load import (
    IN_FLIGHT,
    Pump,
    Tally,
    Target,
    connections,
    drain,
    measured,
    topic,
)
from korvet.testing.bench.payloads import batch

REST_S = 3.0
"""Seconds between writing and reading a log: its file is synced meanwhile."""
VARIANTS = 8
"""Distinct batches sent in turn, so that consecutive requests differ."""


@dataclass(slots=True)
class Range:
    """A range of a partition's offsets to fetch, and the offset of its next request."""

    partition: int
    start: int
    stop: int
    position: int = field(init=False)

    def __post_init__(self) -> None:
        """Begin at the start."""
        self.position = self.start


@dataclass(frozen=True, slots=True)
class Produce:
    """Produce requests with `records` of `size` bytes for each of `parts` partitions.

    They are sent over `width` connections, each with partitions that no other connection uses.
    """

    records: int
    size: int
    width: int = 1
    codec: str = "none"
    parts: int = 1

    async def run(self, target: Target) -> Tally:
        """Send requests until one of the target's limits is reached."""
        batches = [batch(self.records, self.size, self.codec, seed) for seed in range(VARIANTS)]
        async with topic(target, "bench-produce", self.width * self.parts) as name:
            tally = Tally()
            async with measured(target, tally):
                await self.send(target, name, batches, tally)
            return tally

    async def send(self, target: Target, name: str, batches: list[bytes], tally: Tally) -> None:
        """Send these batches in turn until one of the target's limits is reached."""
        payload = self.records * self.size * self.parts
        budget = max(target.megabytes * 1_000_000 // payload // self.width, 1)
        deadline = time.perf_counter() + target.seconds
        async with connections(target, self.width) as opened:
            pumps = []
            for nth, connection in enumerate(opened):
                partitions = range(nth * self.parts, (nth + 1) * self.parts)
                requests = [frames.produce(name, dict.fromkeys(partitions, one)) for one in batches]
                pumps.append(
                    Pump(
                        connection,
                        _limited(requests, budget, deadline),
                        self._count(name, payload, tally),
                    )
                )
            await drain(pumps)

    def _count(self, name: str, payload: int, tally: Tally) -> Callable[[memoryview], None]:
        reply_of = frames.ProduceReply(name)
        records = self.records * self.parts

        def received(reply: memoryview) -> None:
            reply_of.base_offset(reply)
            tally.requests += 1
            tally.records += records
            tally.payload += payload

        return received


@dataclass(frozen=True, slots=True)
class Fetch:
    """Fetch a log of `megabytes`, written in batches of `records` x `size` bytes.

    By default, five ranges of one partition, each repeatedly from its start to its end. `once`:
    five partitions from start to end, as a consumer that was away reads them. The broker has
    REST_S before that, to bring the log to its disk.
    """

    records: int
    size: int
    megabytes: int = 100
    once: bool = False
    codec: str = "none"

    async def run(self, target: Target) -> Tally:
        """Write the log, then read it until its end if `once`, or until the time limit."""
        write = self._write_partitions if self.once else self._write_ranges
        width = IN_FLIGHT if self.once else 1
        async with topic(target, "bench-fetch", width, self.configs(target)) as name:
            ranges = deque(await write(target, name))
            await self.prepare(target, name, ranges)
            tally = Tally()
            async with measured(target, tally):
                await self.read(target, name, ranges, tally)
            return tally

    async def prepare(self, target: Target, name: str, written: Collection[Range]) -> None:
        """Do what is to be done between writing and reading the log."""
        if self.once:
            await asyncio.sleep(REST_S)

    def configs(self, target: Target) -> dict[str, str]:
        """Return the configs of the topic."""
        return {} if self.codec == "none" else {"compression.type": self.codec}

    def batches(self, target: Target) -> int:
        """Return how many batches the log has."""
        megabytes = min(self.megabytes, target.megabytes)
        return max(megabytes * 1_000_000 // (self.records * self.size), IN_FLIGHT)

    async def _write_ranges(self, target: Target, name: str) -> list[Range]:
        shapes = [(self.records, self.size)] * self.batches(target)
        bases = await fill(target, name, shapes, partition=0)
        firsts = [bases[len(bases) * nth // IN_FLIGHT] for nth in range(IN_FLIGHT)]
        return [Range(0, *cut) for cut in itertools.pairwise([*firsts, bases[-1] + 1])]

    async def _write_partitions(self, target: Target, name: str) -> list[Range]:
        """Write all partitions in step: the cache then has the ends of all, not one entirely."""
        batches = [batch(self.records, self.size, self.codec, seed) for seed in range(VARIANTS)]
        requests = [frames.produce(name, dict.fromkeys(range(IN_FLIGHT), one)) for one in batches]
        queue = itertools.islice(itertools.cycle(requests), self.batches(target) // IN_FLIGHT)
        reply_of = frames.ProduceReply(name)
        async with connections(target, 1) as (connection,):
            await drain([Pump(connection, lambda: next(queue, None), reply_of.base_offset)])
        async with connections(target, 1) as (connection,):
            offsets = []
            for timestamp in (frames.EARLIEST, frames.LATEST):
                request = frames.list_offsets(name, IN_FLIGHT, timestamp)
                reply = memoryview(await connection.ask(request))
                offsets.append([offset for _, offset in frames.listed(reply, name)])
        return [Range(nth, *cut) for nth, cut in enumerate(zip(*offsets, strict=True))]

    async def read(self, target: Target, name: str, waiting: deque[Range], tally: Tally) -> None:
        """Read the ranges, and count what is read."""
        deadline = time.perf_counter() + target.seconds
        reply_of = frames.FetchReply(name)
        in_flight: deque[Range] = deque()

        def following() -> bytes | None:
            if not waiting or time.perf_counter() >= deadline:
                return None
            in_flight.append(waiting.popleft())
            return frames.fetch(name, in_flight[-1].partition, in_flight[-1].position)

        def received(reply: memoryview) -> None:
            part = in_flight.popleft()
            records, _, reached = reply_of.read(reply, part.stop)
            if records == 0 and part.position == part.start:
                raise frames.Refused(f"no records at offset {part.start}, below the log's end")
            tally.requests += 1
            tally.records += records
            tally.payload += records * self.size
            # Offsets may have gaps: a range also ends if it has no more records below `stop`.
            if records and reached < part.stop:
                part.position = reached
                waiting.append(part)
            elif not self.once:
                part.position = part.start
                waiting.append(part)

        async with connections(target, 1) as opened:
            await drain([Pump(opened[0], following, received)])


def _limited(requests: list[bytes], budget: int, deadline: float) -> Callable[[], bytes | None]:
    left = itertools.islice(itertools.cycle(requests), budget)
    return lambda: next(left, None) if time.perf_counter() < deadline else None


async def fill(
    target: Target, name: str, shapes: list[tuple[int, int]], partition: int
) -> list[int]:
    """Produce one batch for each shape (records, size) and return their base offsets."""
    built = {
        shape: [frames.produce(name, {partition: batch(*shape, seed=seed)}) for seed in range(4)]
        for shape in set(shapes)
    }
    queue = iter([built[shape][index % 4] for index, shape in enumerate(shapes)])
    reply_of = frames.ProduceReply(name)
    bases: list[int] = []
    async with connections(target, 1) as opened:
        pump = Pump(
            opened[0],
            lambda: next(queue, None),
            lambda reply: bases.append(reply_of.base_offset(reply)),
        )
        await drain([pump])
    return bases


RATES: dict[str, Produce | Fetch] = {
    "p1k": Produce(100, 1000),
    "p1k4": Produce(100, 1000, width=4),
    "p100": Produce(1000, 100),
    "p100lz4": Produce(1000, 100, codec="lz4"),
    "psmall": Produce(1, 100, width=4),
    "psmall32": Produce(1, 100, width=32),
    "pspread": Produce(1, 100, parts=8),
    "f1k": Fetch(100, 1000),
    "f100": Fetch(1000, 100),
    "c1k": Fetch(100, 1000, megabytes=1000, once=True),
    "c100": Fetch(1000, 100, megabytes=1000, once=True),
}
"""Rows that report a rate; those of class Fetch also report what they read."""
LATENCY = "lat"
MEASURES = {
    "p1k": "produce 100 records of 1 KB per request",
    "p1k4": "produce 100 records of 1 KB per request, 4 connections",
    "p100": "produce 1,000 records of 100 B per request",
    "p100lz4": "produce 1,000 records of 100 B per request, lz4",
    "psmall": "produce 1 record of 100 B per request, 4 connections",
    "psmall32": "produce 1 record of 100 B per request, 32 connections",
    "pspread": "produce 1 record of 100 B to each of 8 partitions per request",
    "f1k": "fetch 1 KB records of a log of 100 MB, repeatedly",
    "f100": "fetch 100 B records of a log of 100 MB, repeatedly",
    "c1k": "fetch 1 KB records of a log of up to 1 GB, once",
    "c100": "fetch 100 B records of a log of up to 1 GB, once",
    LATENCY: "500 produces of 1 record per second: time to the acknowledgement",
}
"""A row's name, and in words what it measures."""
DEFAULT = ("p1k", "p100", "psmall", "f1k", "f100", "c1k", LATENCY)
