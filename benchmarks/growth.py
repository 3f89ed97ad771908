"""What does not show in a rate: cost as a log or a topic grows, and memory a record takes."""

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass

import redis

from benchmarks import frames
from benchmarks.load import Pump, Tally, Target, connections, drain, measured, topic
from benchmarks.payloads import batch
from benchmarks.throughput import fill

PROBES = 500
RECORDS = 10
SIZE = 100


@dataclass(frozen=True, slots=True)
class FlatLog:
    """Cost of small produces and of small fetches at random places, as one partition grows."""

    sizes: tuple[int, ...] = (1_000, 10_000, 100_000, 1_000_000)

    async def run(self, target: Target) -> list[dict[str, float | int]]:
        """One row for each size: records already there, then microseconds a request."""
        rows = []
        async with topic(target, "bench-flat", 1) as name:
            bases: list[int] = []
            records = 0
            for size in self.sizes:
                shapes = [(1000, SIZE)] * ((size - records) // 1000)
                bases += await fill(target, name, shapes, partition=0)
                records += 1000 * len(shapes)
                produced = await _produce_probe(target, name, 1)
                fetched = await _fetch_probe(target, name, bases)
                rows.append({"log_records": records, **_cost(produced, "produce"), **fetched})
                records += PROBES * RECORDS
        return rows


@dataclass(frozen=True, slots=True)
class FlatTopic:
    """Cost of small produces in turn over all partitions, as their number grows."""

    widths: tuple[int, ...] = (1, 10, 100, 1000)

    async def run(self, target: Target) -> list[dict[str, float | int]]:
        """One row for each number of partitions."""
        rows: list[dict[str, float | int]] = []
        for width in self.widths:
            async with topic(target, "bench-wide", width) as name:
                tally = await _produce_probe(target, name, width)
                rows.append({"partitions": width, **_cost(tally, "produce")})
        return rows


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of Redis a record of 100 B takes, 1,000 a batch."""

    redis: str
    records: int = 200_000

    async def run(self, target: Target) -> dict[str, float | int]:
        """Bytes of Redis and of the wire for each record."""
        wire = len(batch(1000, SIZE))
        store = redis.Redis.from_url(self.redis)
        async with topic(target, "bench-memory", 1) as name:
            before = int(store.info("memory")["used_memory"])
            await fill(target, name, [(1000, SIZE)] * (self.records // 1000), partition=0)
            used = int(store.info("memory")["used_memory"]) - before
        store.close()
        return {
            "records": self.records,
            "redis_bytes_per_record": round(used / self.records, 1),
            "wire_bytes_per_record": round(wire / 1000, 1),
            "ratio_to_wire": round(used / self.records / (wire / 1000), 3),
        }


def _cost(tally: Tally, what: str) -> dict[str, float | int]:
    row: dict[str, float | int] = {
        f"{what}_us_per_request": round(tally.seconds / tally.requests * 1e6, 1)
    }
    if tally.resident:
        row[f"{what}_cpu_us_per_request"] = round(tally.broker_cpu / tally.requests * 1e6, 1)
    return row


async def _produce_probe(target: Target, name: str, width: int) -> Tally:
    one = batch(RECORDS, SIZE)
    turn = itertools.cycle([frames.produce(name, {p: one}) for p in range(width)])
    requests = iter([next(turn) for _ in range(max(PROBES, width))])
    place = frames.ProduceReply(name)
    return await _probe(target, lambda: next(requests, None), place.base_offset)


async def _fetch_probe(target: Target, name: str, bases: list[int]) -> dict[str, float | int]:
    places = random.Random(len(bases)).choices(bases, k=PROBES)
    questions = iter([frames.fetch(name, 0, offset, max_bytes=1000) for offset in places])
    place = frames.FetchReply(name)
    tally = await _probe(
        target, lambda: next(questions, None), lambda reply: place.read(reply, 1 << 62)[0]
    )
    return _cost(tally, "fetch")


async def _probe(
    target: Target, following: Callable[[], bytes | None], read: Callable[[memoryview], int]
) -> Tally:
    tally = Tally()

    def received(reply: memoryview) -> None:
        read(reply)
        tally.requests += 1

    async with connections(target, 1) as opened, measured(target, tally):
        await drain([Pump(opened[0], following, received)])
    return tally
