"""Measure what copying to segments costs: two topics take turns, and only one is tiered."""

import asyncio
import statistics
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from benchmarks.tiered import LATEST_TIERED, list_newer, listed_newer
from korvet.testing.bench import frames
from korvet.testing.bench.load import (
    GIGABYTE,
    TICK,
    Tally,
    Target,
    client_cpu,
    connections,
    process_name,
    process_stat,
    process_tree,
    topic,
)
from korvet.testing.bench.payloads import batch
from korvet.testing.bench.throughput import VARIANTS, Produce

PAIRS = 5
SEGMENT_BYTES = 8 << 20
REST_S = 2.0
"""Seconds between two turns: Redis frees the deleted topic's memory."""
PARTS = ("redis", "broker", "threads")
TRIES, PAUSE_S = 480, 0.25
SIDES: dict[str, Mapping[str, str]] = {
    "plain": {"offset.mode": "dense", "remote.storage.enable": "false"},
    "copied": {
        "offset.mode": "dense",
        "remote.storage.enable": "true",
        "segment.bytes": str(SEGMENT_BYTES),
    },
}
"""Topic configs. In dense mode the difference of two offsets is a number of records."""


@dataclass(slots=True)
class Turn:
    """The figures of one turn: of the produce phase, and until all is copied."""

    records_per_s: float
    copied: float
    """Share of the log that was copied when the last record was acknowledged."""
    wait_s: float
    """Seconds until the rest was copied, except for less than a segment."""
    cpu: dict[str, float]
    """CPU s per GB by process, the wait included."""
    producing_cpu: float
    client_cpu: float


@dataclass(frozen=True, slots=True)
class Copying:
    """The requests of `load` to a topic that is copied, and to one that is not."""

    load: Produce
    pairs: int = PAIRS

    async def run(self, target: Target) -> dict[str, object]:
        """Return medians of both sides, and of the ratios of the pairs: copied over plain."""
        turns: dict[str, list[Turn]] = {side: [] for side in SIDES}
        for number in range(self.pairs):
            for side in list(SIDES)[:: -1 if number % 2 else 1]:
                turns[side].append(await self._turn(target, side))
                await asyncio.sleep(REST_S)
        pairs = zip(turns["copied"], turns["plain"], strict=True)
        found: dict[str, object] = {
            "of_plain": round(
                statistics.median(one.records_per_s / other.records_per_s for one, other in pairs),
                3,
            )
        }
        for side, some in turns.items():
            found |= {f"{side}_{name}": value for name, value in _medians(some).items()}
        found["copied_share"] = round(statistics.median(each.copied for each in turns["copied"]), 3)
        found["wait_s"] = round(statistics.median(each.wait_s for each in turns["copied"]), 2)
        return found

    async def _turn(self, target: Target, side: str) -> Turn:
        batches = [batch(self.load.records, self.load.size, seed=n) for n in range(VARIANTS)]
        tally = Tally()
        width = self.load.width * self.load.parts
        async with topic(target, "bench-copy", width, SIDES[side]) as name:
            cpu, client = _seconds_by_part(target.pids), client_cpu()
            begin = time.perf_counter()
            await self.load.send(target, name, batches, tally)
            seconds = time.perf_counter() - begin
            client = client_cpu() - client
            producing = _spent(cpu, _seconds_by_part(target.pids))
            copied, total, wait_s = 0, 1, 0.0
            if side == "copied":
                copied, total = await _progress(target, name, width)
                wait_s = await self._wait(target, name, width)
            spent = _spent(cpu, _seconds_by_part(target.pids))
        gigabytes = tally.payload / GIGABYTE
        return Turn(
            tally.records / seconds,
            copied / total,
            wait_s,
            {part: each / gigabytes for part, each in spent.items()},
            sum(producing.values()) / gigabytes,
            client / gigabytes,
        )

    async def _wait(self, target: Target, name: str, partitions: int) -> float:
        begin = time.perf_counter()
        rest = partitions * SEGMENT_BYTES // self.load.size
        for _ in range(TRIES):
            copied, total = await _progress(target, name, partitions)
            if total - copied < rest:
                return time.perf_counter() - begin
            await asyncio.sleep(PAUSE_S)
        raise frames.Refused(f"{name}: {total - copied} records not copied after 120 s")


def _medians(turns: list[Turn]) -> dict[str, float]:
    rows: dict[str, list[float]] = {
        "records_per_s": [each.records_per_s for each in turns],
        "cpu_s_per_gb": [sum(each.cpu.values()) for each in turns],
        "producing_cpu_s_per_gb": [each.producing_cpu for each in turns],
        "client_s_per_gb": [each.client_cpu for each in turns],
    }
    for part in PARTS:
        rows[f"{part}_s_per_gb"] = [each.cpu.get(part, 0.0) for each in turns]
    return {name: round(statistics.median(values), 3) for name, values in rows.items()}


def _spent(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    return {part: after[part] - before.get(part, 0.0) for part in after}


async def _progress(target: Target, name: str, partitions: int) -> tuple[int, int]:
    """Return how many records are copied, and how many there are."""
    async with connections(target, 1) as (connection,):
        sums = []
        for timestamp in (LATEST_TIERED, frames.LATEST):
            request = list_newer(name, partitions, timestamp)
            reply = memoryview(await connection.ask(request))
            sums.append(sum(max(offset, 0) for _, offset in listed_newer(reply, name)))
    return sums[0], sums[1]


def _seconds_by_part(roots: Iterable[int]) -> dict[str, float]:
    """Return the CPU seconds so far of Redis, of the brokers' main threads, and of the others."""
    found = dict.fromkeys(PARTS, 0.0)
    for pid in process_tree(roots):
        whole = _seconds(process_stat(pid))
        if not process_name(pid).startswith("python"):
            found["redis"] += whole
            continue
        main = _seconds(process_stat(pid, f"task/{pid}/"))
        found["broker"] += main
        found["threads"] += whole - main
    return found


def _seconds(fields: list[str]) -> float:
    return sum(map(int, fields[11:13])) / TICK if fields else 0.0
