"""Compare the protocols of Kafka 0.7, 0.8 and today on one fresh Korvet with equal records.

Rules
- A 0.7 broker sends no reply to a produce request. An OFFSETS request follows every SETS message
  sets; its reply counts them, because the broker sends it once they are stored.
- Fetches read one log from its start to its end repeatedly, 1 MiB per request.
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

from benchmarks.report import Line
from korvet.testing.bench import frames
from korvet.testing.bench.load import Pump, Tally, Target, connections, drain, measured, topic
from korvet.testing.bench.payloads import values
from korvet.testing.bench.throughput import Fetch, Produce, fill

SETS = 20
RECORDS = 200
SIZES = (100, 1000)
LOG_MEGABYTES = 50


@asynccontextmanager
async def korvet(store: str | None) -> AsyncIterator[tuple[str, str, int]]:
    """Run a broker with layout `batch`; yield its address, its 0.7 address and its process id."""
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
    """Encode RECORDS messages of magic 1."""
    return b"".join(
        struct.pack(">ibbI", len(value) + 6, 1, 0, zlib.crc32(value)) + value
        for value in values(RECORDS, size, seed)
    )


def request(kind: int, name: str, rest: bytes) -> bytes:
    """Encode a 0.7 request for partition 0."""
    body = struct.pack(">h", kind) + frames.text(name) + bytes(4) + rest
    return struct.pack(">i", len(body)) + body


def produce(name: str, data: bytes) -> bytes:
    return request(0, name, struct.pack(">i", len(data)) + data)


def fetch(name: str, offset: int) -> bytes:
    return request(1, name, struct.pack(">qi", offset, frames.MEGABYTE))


def latest(name: str) -> bytes:
    return request(4, name, struct.pack(">qi", -1, 1))


async def legacy_produce(target: Target, size: int) -> Tally:
    """Produce message sets of RECORDS messages over one 0.7 connection."""
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
            raise frames.Refused("OFFSETS of 0.7: the reply has an error code")
        tally.requests += SETS
        tally.records += SETS * RECORDS
        tally.payload += SETS * RECORDS * size

    async with connections(target, 1) as opened:
        opened[0].send(sets[0])  # creates the topic before the timed part
        await opened[0].ask(latest(name))
        async with measured(target, tally):
            await drain([Pump(opened[0], following, received)])
    return tally


async def legacy_fetch(target: Target, size: int) -> Tally:
    """Fetch the log over one 0.7 connection, 1 MiB per request."""
    name = f"bench07f-{size}-{time.time_ns() // 1_000_000:x}"
    data = message_set(size, 1)
    count = LOG_MEGABYTES * 1_000_000 // (RECORDS * size)
    end = count * len(data)
    tally = Tally()
    async with connections(target, 1) as opened:
        for _ in range(count):
            opened[0].send(produce(name, data))
        await opened[0].ask(latest(name))
        offsets = itertools.cycle(range(0, end - frames.MEGABYTE, frames.MEGABYTE))
        async with measured(target, tally):
            deadline = time.perf_counter() + target.seconds
            await drain(
                [
                    Pump(
                        opened[0],
                        lambda: fetch(name, next(offsets)) if _before(deadline) else None,
                        _counter(tally, size),
                    )
                ]
            )
    return tally


def _before(deadline: float) -> bool:
    return time.perf_counter() < deadline


def _counter(tally: Tally, size: int) -> Callable[[memoryview], None]:
    def received(reply: memoryview) -> None:
        if len(reply) != frames.MEGABYTE + 2:
            raise frames.Refused(f"Fetch of 0.7: a reply of {len(reply)} bytes, expected 1 MiB + 2")
        tally.requests += 1
        tally.records += frames.MEGABYTE // (size + 10)
        tally.payload += frames.MEGABYTE // (size + 10) * size

    return received


async def converted(target: Target, size: int) -> Tally:
    """Fetch a `batch` log as a 0.8 client: Fetch v0, message sets of magic 0."""
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
                        lambda: _fetch0(name, next(turn)) if _before(deadline) else None,
                        received,
                    )
                ]
            )
    return tally


def _fetch0(name: str, offset: int) -> bytes:
    body = struct.pack(">iiii", -1, 100, 1, 1) + frames.text(name)
    return frames.frame(1, 0, body + struct.pack(">iiqi", 1, 0, offset, frames.MEGABYTE))


async def run(seconds: float, megabytes: int, store: str | None) -> AsyncIterator[Line]:
    """Yield a line for each case and protocol."""
    async with korvet(store) as (main, legacy, pid):
        current = Target(main, (pid,), seconds, megabytes)
        legacy_target = replace(current, address=legacy)
        for size in SIZES:
            for case, label, work in (
                (f"produce 200 x {size} B", "batch", Produce(RECORDS, size).run(current)),
                (f"produce 200 x {size} B", "0.7", legacy_produce(legacy_target, size)),
                (f"fetch {size} B", "batch", Fetch(RECORDS, size, LOG_MEGABYTES).run(current)),
                (f"fetch {size} B", "0.7", legacy_fetch(legacy_target, size)),
                (f"fetch {size} B", "0.8 of batch", converted(current, size)),
            ):
                yield {"case": case, "label": label, **(await work).row()}


def summary(lines: list[Line]) -> str:
    """Return a Markdown table of the rates, and their ratios to today's protocol."""
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
