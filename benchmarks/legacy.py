"""Kafka 0.7 and 0.8 beside today's protocol: one fresh Korvet, the same bytes over each.

- 0.7 sends no answers to what is produced: every SETS sets one OFFSETS is asked, and its answer
  counts them, because it comes only once they are stored
- fetches go over one log from its start to its end, again and again, 1 MiB at a time
"""

import asyncio
import itertools
import shutil
import signal
import struct
import sys
import tempfile
import time
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from benchmarks import frames
from benchmarks.load import Pump, Tally, Target, connections, drain, measured, topic
from benchmarks.payloads import values
from benchmarks.report import Line
from benchmarks.throughput import Fetch, Produce, fill

SETS = 20
RECORDS = 200
SIZES = (100, 1000)
LOG_MEGABYTES = 50


@asynccontextmanager
async def korvet(store: str | None) -> AsyncIterator[tuple[str, str, int]]:
    """A broker with layout `batch`: where newer clients connect, where 0.7's, and its process."""
    folder = Path(tempfile.mkdtemp(prefix="korvet-bench-"))
    words = [sys.executable, "-m", "korvet", "--listen", "127.0.0.1:0"]
    words += ["--legacy-listen", "127.0.0.1:0", "--data-dir", str(folder)]
    words += ["--set", "storage.format=batch", *(("--redis", store) if store else ())]
    process = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        lines = [(await asyncio.wait_for(process.stdout.readline(), 30)).decode() for _ in "12"]
        main, legacy = (line.split()[-1] for line in lines)
        yield main, legacy, process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        await process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def message_set(size: int, seed: int) -> bytes:
    """RECORDS messages of magic 1."""
    return b"".join(
        struct.pack(">ibbI", len(value) + 6, 1, 0, zlib.crc32(value)) + value
        for value in values(RECORDS, size, seed)
    )


def request(kind: int, name: str, rest: bytes) -> bytes:
    """A frame of 0.7 for partition 0."""
    body = struct.pack(">h", kind) + frames.text(name) + bytes(4) + rest
    return struct.pack(">i", len(body)) + body


def produce(name: str, data: bytes) -> bytes:
    return request(0, name, struct.pack(">i", len(data)) + data)


def fetch(name: str, offset: int) -> bytes:
    return request(1, name, struct.pack(">qi", offset, frames.MEGABYTE))


def latest(name: str) -> bytes:
    return request(4, name, struct.pack(">qi", -1, 1))


async def old_produce(target: Target, size: int) -> Tally:
    """Sets of RECORDS over one connection of 0.7."""
    name = f"bench07-{size}-{time.time_ns() // 1_000_000:x}"
    sets = [produce(name, message_set(size, seed)) for seed in range(SETS)]
    whole = b"".join(sets) + latest(name)
    tally = Tally()
    deadline = time.perf_counter() + target.seconds
    budget = target.megabytes * 1_000_000 // (SETS * RECORDS * size)
    left = itertools.count(budget, -1)

    def following() -> bytes | None:
        return whole if next(left) > 0 and time.perf_counter() < deadline else None

    def received(reply: memoryview) -> None:
        if struct.unpack_from(">h", reply)[0] != frames.NO_ERROR:
            raise frames.Refused("OFFSETS was refused")
        tally.requests += SETS
        tally.records += SETS * RECORDS
        tally.payload += SETS * RECORDS * size

    async with connections(target, 1) as opened:
        opened[0].send(sets[0])  # the topic comes to be before the clock runs
        await opened[0].ask(latest(name))
        async with measured(target, tally):
            await drain([Pump(opened[0], following, received)])
    return tally


async def old_fetch(target: Target, size: int) -> Tally:
    """The log over one connection of 0.7, read on from where each answer ended."""
    name = f"bench07f-{size}-{time.time_ns() // 1_000_000:x}"
    data = message_set(size, 1)
    count = LOG_MEGABYTES * 1_000_000 // (RECORDS * size)
    end = count * len(data)
    tally = Tally()
    async with connections(target, 1) as opened:
        for _ in range(count):
            opened[0].send(produce(name, data))
        await opened[0].ask(latest(name))
        places = itertools.cycle(range(0, end - frames.MEGABYTE, frames.MEGABYTE))
        async with measured(target, tally):
            deadline = time.perf_counter() + target.seconds
            await drain(
                [
                    Pump(
                        opened[0],
                        lambda: fetch(name, next(places)) if _early(deadline) else None,
                        _counter(tally, size),
                    )
                ]
            )
    return tally


def _early(deadline: float) -> bool:
    return time.perf_counter() < deadline


def _counter(tally: Tally, size: int) -> Callable[[memoryview], None]:
    def received(reply: memoryview) -> None:
        if len(reply) != frames.MEGABYTE + 2:
            raise frames.Refused(f"{len(reply)} bytes came")
        tally.requests += 1
        tally.records += frames.MEGABYTE // (size + 10)
        tally.payload += frames.MEGABYTE // (size + 10) * size

    return received


async def converted(target: Target, size: int) -> Tally:
    """A `batch` log as clients of 0.8 read it: Fetch 0, message sets of magic 0."""
    tally = Tally()
    async with topic(target, "bench08", 1) as name:
        bases = await fill(target, name, [(RECORDS, size)] * 500, partition=0)
        turn = itertools.cycle(bases[: len(bases) // 2])
        fits = frames.MEGABYTE // (size + 26)
        async with connections(target, 1) as opened, measured(target, tally):
            deadline = time.perf_counter() + target.seconds

            def received(reply: memoryview) -> None:
                tally.requests += 1
                tally.records += fits
                tally.payload += fits * size

            await drain(
                [
                    Pump(
                        opened[0],
                        lambda: _fetch0(name, next(turn)) if _early(deadline) else None,
                        received,
                    )
                ]
            )
    return tally


def _fetch0(name: str, offset: int) -> bytes:
    body = struct.pack(">iiii", -1, 100, 1, 1) + frames.text(name)
    return frames.frame(1, 0, body + struct.pack(">iiqi", 1, 0, offset, frames.MEGABYTE))


async def run(seconds: float, megabytes: int, store: str | None) -> AsyncIterator[Line]:
    """A line for each row and side."""
    async with korvet(store) as (main, legacy, pid):
        today = Target(main, (pid,), seconds, megabytes)
        old = replace(today, address=legacy)
        for size in SIZES:
            for case, label, work in (
                (f"produce 200 x {size} B", "batch", Produce(RECORDS, size).run(today)),
                (f"produce 200 x {size} B", "0.7", old_produce(old, size)),
                (f"fetch {size} B", "batch", Fetch(RECORDS, size, LOG_MEGABYTES).run(today)),
                (f"fetch {size} B", "0.7", old_fetch(old, size)),
                (f"fetch {size} B", "0.8 of batch", converted(today, size)),
            ):
                yield {"case": case, "label": label, **(await work).row()}


def summary(lines: list[Line]) -> str:
    """A Markdown table: records a second of each row, and of today's protocol."""
    rows = ["| case | protocol | records/s | MB/s | of batch |", "|---|---|---|---|---|"]
    base: dict[object, float] = {}
    for line in lines:
        rate = float(str(line["records_per_s"]))
        base.setdefault(line["case"], rate)
        share = rate / base[line["case"]]
        rows.append(
            f"| {line['case']} | {line['label']} | {rate:,.0f} | {line['mb_per_s']} | {share:.2f} |"
        )
    return "\n".join(rows) + "\n"
