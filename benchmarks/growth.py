"""Measure the cost of requests as a log or a topic grows, and the memory per record."""

import itertools
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import redis

from korvet.testing.bench import frames
from korvet.testing.bench.load import Pump, Tally, Target, connections, drain, measured, topic
from korvet.testing.bench.payloads import batch
from korvet.testing.bench.throughput import fill

PROBES = 500
RECORDS = 10
SIZE = 100


@dataclass(frozen=True, slots=True)
class FlatLog:
    """The cost of small produces, and of small fetches at random offsets, as a log grows."""

    sizes: tuple[int, ...] = (1_000, 10_000, 100_000, 1_000_000)

    async def run(self, target: Target) -> list[dict[str, float | int]]:
        """Return a row for each log size: records, and microseconds per request."""
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
    """The cost of small produces, round-robin over all partitions, as their number grows."""

    widths: tuple[int, ...] = (1, 10, 100, 1000)

    async def run(self, target: Target) -> list[dict[str, float | int]]:
        """Return a row for each number of partitions."""
        rows: list[dict[str, float | int]] = []
        for width in self.widths:
            async with topic(target, "bench-wide", width) as name:
                tally = await _produce_probe(target, name, width)
                rows.append({"partitions": width, **_cost(tally, "produce")})
        return rows


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of Redis per record of 100 B, in batches of 1,000 records."""

    redis: str
    records: int = 200_000

    async def run(self, target: Target) -> dict[str, float | int]:
        """Return the bytes per record in Redis and on the wire."""
        wire = len(batch(1000, SIZE))
        store = redis.Redis.from_url(self.redis)
        async with topic(target, "bench-memory", 1) as name:
            before = _settled_memory(store)
            await fill(target, name, [(1000, SIZE)] * (self.records // 1000), partition=0)
            used = int(store.info("memory")["used_memory"]) - before
        store.close()
        return {
            "records": self.records,
            "redis_bytes_per_record": round(used / self.records, 1),
            "wire_bytes_per_record": round(wire / 1000, 1),
            "ratio_to_wire": round(used / self.records / (wire / 1000), 3),
        }


def _settled_memory(store: Any) -> int:
    """Return Redis's used memory once deleted topics of earlier cases are freed."""
    used = int(store.info("memory")["used_memory"])
    for _ in range(100):
        time.sleep(0.3)
        before, used = used, int(store.info("memory")["used_memory"])
        if used > before - (1 << 16):
            break
    return used


def _cost(tally: Tally, request: str) -> dict[str, float | int]:
    row: dict[str, float | int] = {
        f"{request}_us_per_request": round(tally.seconds / tally.requests * 1e6, 1)
    }
    if tally.resident:
        row[f"{request}_cpu_us_per_request"] = round(tally.broker_cpu / tally.requests * 1e6, 1)
    return row


async def _produce_probe(target: Target, name: str, width: int) -> Tally:
    one = batch(RECORDS, SIZE)
    turn = itertools.cycle([frames.produce(name, {p: one}) for p in range(width)])
    requests = iter([next(turn) for _ in range(max(PROBES, width))])
    reply_of = frames.ProduceReply(name)
    return await _probe(target, lambda: next(requests, None), reply_of.base_offset)


async def _fetch_probe(target: Target, name: str, bases: list[int]) -> dict[str, float | int]:
    offsets = random.Random(len(bases)).choices(bases, k=PROBES)
    questions = iter([frames.fetch(name, 0, offset, max_bytes=1000) for offset in offsets])
    reply_of = frames.FetchReply(name)
    tally = await _probe(
        target, lambda: next(questions, None), lambda reply: reply_of.read(reply, 1 << 62)[0]
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
