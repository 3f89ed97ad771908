"""The produce and fetch rows: what a broker takes in and gives out as fast as it answers."""

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks import frames
from benchmarks.load import Pump, Tally, Target, connections, drain, measured, topic
from benchmarks.payloads import batch

VARIANTS = 8
"""Different batches sent in turn, so that no broker sees one request repeated."""


@dataclass(frozen=True, slots=True)
class Produce:
    """`records` of `size` bytes for each of `parts` partitions a request, over `width` connections
    that share no partition."""

    records: int
    size: int
    width: int = 1
    codec: str = "none"
    parts: int = 1

    async def run(self, target: Target) -> Tally:
        """Timed requests until the target's bounds."""
        batches = [batch(self.records, self.size, self.codec, seed) for seed in range(VARIANTS)]
        async with topic(target, "bench-produce", self.width * self.parts) as name:
            tally = Tally()
            async with measured(target, tally):
                await self._send(target, name, batches, tally)
            return tally

    async def _send(self, target: Target, name: str, batches: list[bytes], tally: Tally) -> None:
        payload = self.records * self.size * self.parts
        budget = max(target.megabytes * 1_000_000 // payload // self.width, 1)
        deadline = time.perf_counter() + target.seconds
        async with connections(target, self.width) as opened:
            pumps = []
            for nth, connection in enumerate(opened):
                own = range(nth * self.parts, (nth + 1) * self.parts)
                requests = [frames.produce(name, dict.fromkeys(own, one)) for one in batches]
                pumps.append(
                    Pump(
                        connection,
                        _bounded(requests, budget, deadline),
                        self._count(name, payload, tally),
                    )
                )
            await drain(pumps)

    def _count(self, name: str, payload: int, tally: Tally) -> Callable[[memoryview], None]:
        place = frames.ProduceReply(name)
        records = self.records * self.parts

        def received(reply: memoryview) -> None:
            place.base_offset(reply)
            tally.requests += 1
            tally.records += records
            tally.payload += payload

        return received


@dataclass(frozen=True, slots=True)
class Fetch:
    """A log of `megabytes`, `records` x `size` bytes a batch, read in five lanes of one connection.

    Each lane reads its own fifth from where the last reply ended, as a consumer would.
    """

    records: int
    size: int
    megabytes: int = 100

    async def run(self, target: Target) -> Tally:
        """The log is read over and over until the target's seconds are over."""
        async with topic(target, "bench-fetch", 1) as name:
            bases = await fill(
                target, name, [(self.records, self.size)] * self._batches(), partition=0
            )
            tally = Tally()
            async with measured(target, tally):
                await self._read(target, name, bases, tally)
            return tally

    def _batches(self) -> int:
        return self.megabytes * 1_000_000 // (self.records * self.size)

    async def _read(self, target: Target, name: str, bases: list[int], tally: Tally) -> None:
        deadline = time.perf_counter() + target.seconds
        place = frames.FetchReply(name)
        lanes = _lanes(bases)
        waiting = list(range(len(lanes)))
        asked: list[int] = []
        positions = [start for start, _ in lanes]

        def following() -> bytes | None:
            if time.perf_counter() >= deadline:
                return None
            lane = waiting.pop(0)
            asked.append(lane)
            return frames.fetch(name, 0, positions[lane])

        def received(reply: memoryview) -> None:
            lane = asked.pop(0)
            start, stop = lanes[lane]
            records, _, reached = place.read(reply, stop)
            if records == 0 and positions[lane] == start:
                raise frames.Refused(f"nothing at offset {start}, below the log's end")
            tally.requests += 1
            tally.records += records
            tally.payload += records * self.size
            # Offsets may have gaps: nothing more below `stop` is the lane's end as well.
            positions[lane] = reached if records and reached < stop else start
            waiting.append(lane)

        async with connections(target, 1) as opened:
            await drain([Pump(opened[0], following, received)])


def _lanes(bases: list[int]) -> list[tuple[int, int]]:
    cuts = [bases[len(bases) * lane // 5] for lane in range(5)] + [bases[-1] + 1]
    return [(start, stop) for start, stop in itertools.pairwise(cuts) if start < stop]


def _bounded(requests: list[bytes], budget: int, deadline: float) -> Callable[[], bytes | None]:
    turn = itertools.cycle(requests)
    left = itertools.count(budget, -1)

    def following() -> bytes | None:
        if next(left) <= 0 or time.perf_counter() >= deadline:
            return None
        return next(turn)

    return following


async def fill(
    target: Target, name: str, shapes: list[tuple[int, int]], partition: int
) -> list[int]:
    """The base offset of each batch stored, one for each shape (records, size), in order."""
    built = {
        shape: [frames.produce(name, {partition: batch(*shape, seed=seed)}) for seed in range(4)]
        for shape in set(shapes)
    }
    queue = iter([built[shape][index % 4] for index, shape in enumerate(shapes)])
    place = frames.ProduceReply(name)
    bases: list[int] = []
    async with connections(target, 1) as opened:
        pump = Pump(
            opened[0],
            lambda: next(queue, None),
            lambda reply: bases.append(place.base_offset(reply)),
        )
        await drain([pump])
    return bases
