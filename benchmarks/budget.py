"""Produce at full speed into the embedded default for minutes: Redis keeps its budget, no loss.

    python -m benchmarks.budget --seconds 600

A fresh `python -m korvet` with its defaults but for `local.memory.bytes`. Four connections produce
as fast as the broker lets them. A reader in its own process stays twice the budget behind, so that
it reads segments, and checks each batch: offsets without a gap, CRC, and in layout `batch` the very
batch that was sent. It commits, and `retention.consumed.delete` removes what it has read, so that
the disk stays bounded. Ends with a line PASS or FAIL, and that exit code.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import shutil
import struct
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from benchmarks.fresh import Column, command, stop
from korvet.embedded_redis.socket import ask, socket_path
from korvet.testing.bench import frames
from korvet.testing.bench.load import Pump, Target, connections, drain, own_bytes, topic
from korvet.testing.bench.payloads import CRC_AT, batch
from korvet.testing.bench.throughput import VARIANTS

PARTITIONS, RECORDS, SIZE = 4, 100, 1000
SAMPLE_S, LINE_S = 0.25, 10.0
MIN_FREE = 4 << 30
"""Bytes that stay free on the disk: below them the run fails."""
DRAIN_S = 300.0
GROUP = "budget-reader"


@dataclass
class Watch:
    """Samples of Redis and of the disk while the load runs."""

    folder: Path
    pid: int
    peak: int = 0
    rss: int = 0
    broker: int = 0
    disk: int = 0
    disk_peak: int = 0
    samples: int = 0
    failure: str = ""
    acked: list[int] = field(default_factory=lambda: [0] * PARTITIONS)

    async def run(self) -> None:
        """Sample until cancelled; print a line each LINE_S."""
        began = said = time.monotonic()
        while True:
            await asyncio.to_thread(self.sample)
            if time.monotonic() - said >= LINE_S:
                said = time.monotonic()
                print(
                    f"{said - began:5.0f} s  {sum(self.acked) * SIZE / 1e9:6.2f} GB written, "
                    f"used_memory {self.peak / 1e6:.0f} MB at most, rss {self.rss / 1e6:.0f} MB, "
                    f"broker {self.broker / 1e6:.0f} MB, disk {self.disk / 1e9:.1f} GB",
                    flush=True,
                )
            await asyncio.sleep(SAMPLE_S)

    def sample(self) -> None:
        """Read memory and disk once."""
        text = ask(socket_path(self.folder / "data"), b"INFO memory")
        rows = dict(line.partition(b":")[::2] for line in text.split())
        if rows:
            # The server's own peak includes the time between two samples.
            self.peak = max(self.peak, int(rows[b"used_memory_peak"]))
            self.rss = max(self.rss, int(rows[b"used_memory_rss"]))
            self.samples += 1
        self.broker = max(self.broker, own_bytes(self.pid))
        self.disk = sum(_sizes(self.folder))
        self.disk_peak = max(self.disk_peak, self.disk)
        if shutil.disk_usage(self.folder).free < MIN_FREE:
            self.failure = f"the disk has less than {MIN_FREE >> 30} GiB left"


class Producer:
    """Requests in turn until the time limit; waits while the disk holds more than its limit."""

    def __init__(self, watch: Watch, name: str, deadline: float, most_disk: int) -> None:
        self._watch, self._name = watch, name
        self._deadline, self._most_disk = deadline, most_disk
        self.waited_s = 0.0

    async def run(self, address: str, batches: list[bytes]) -> None:
        """Produce to each partition over its own connection until the deadline."""
        async with connections(Target(address), PARTITIONS) as opened:
            requests = [
                itertools.cycle([frames.produce(self._name, {number: each}) for each in batches])
                for number in range(PARTITIONS)
            ]
            while time.monotonic() < self._deadline and not self._watch.failure:
                await drain(
                    [
                        Pump(
                            connection,
                            partial(self._following, requests[number]),
                            partial(self._acknowledged, number),
                        )
                        for number, connection in enumerate(opened)
                    ]
                )
                if self._is_full:
                    self.waited_s += 0.2
                    await asyncio.sleep(0.2)

    @property
    def _is_full(self) -> bool:
        return self._watch.disk > self._most_disk

    def _following(self, requests: Iterator[bytes]) -> bytes | None:
        is_over = time.monotonic() >= self._deadline or self._watch.failure or self._is_full
        return None if is_over else next(requests)

    def _acknowledged(self, number: int, reply: memoryview) -> None:
        base = frames.ProduceReply(self._name).base_offset(reply)
        if base != self._watch.acked[number]:
            raise frames.Refused(f"partition {number}: base offset {base} was not expected")
        self._watch.acked[number] = base + RECORDS


def _sizes(folder: Path) -> Iterator[int]:
    for base, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # deleted in the meantime
                yield os.stat(os.path.join(base, name)).st_size


async def _load(options: argparse.Namespace, watch: Watch, address: str) -> list[str]:
    """Run producer and reader; return what went wrong."""
    made = [batch(RECORDS, SIZE, seed=seed) for seed in range(VARIANTS)]
    configs = {
        "storage.format": options.format,
        "offset.mode": "dense",
        "retention.consumed": GROUP,
        "retention.consumed.delete": "true",
        "file.delete.delay.ms": "1000",
    }
    target = Target(address)
    async with topic(target, "budget", PARTITIONS, configs) as name:
        crcs = [struct.unpack_from(">I", each, CRC_AT)[0] for each in made]
        plan = {
            "group": GROUP,
            "topic": name,
            "partitions": PARTITIONS,
            "behind": 2 * options.memory // SIZE // PARTITIONS,
            "crcs": crcs if options.format == "batch" else [],
        }
        words = (sys.executable, "-m", "benchmarks.budget_reader", address, json.dumps(plan))
        reader = await asyncio.create_subprocess_exec(
            *words, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        assert reader.stdin is not None and reader.stdout is not None
        answer = asyncio.create_task(reader.stdout.readline())
        producer = Producer(watch, name, time.monotonic() + options.seconds, options.disk)
        writing = asyncio.create_task(producer.run(address, made))
        wrong = []
        try:
            await asyncio.wait({writing, answer}, return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                watch.failure = "the reader ended early"
            await writing
        except (frames.Refused, ConnectionError) as error:
            wrong.append(f"producer: {error}")
        reader.stdin.write(json.dumps(watch.acked).encode() + b"\n")
        try:
            found = json.loads(await asyncio.wait_for(answer, DRAIN_S) or b"{}")
        except TimeoutError:
            found = {}
        await stop(reader)
    print(f"producer waited for the disk {producer.waited_s:.0f} s of {options.seconds} s")
    print(f"slowest fetch {found.get('slowest_s')} s, read {found.get('bytes', 0) / 1e9:.2f} GB")
    return [*wrong, *_differences(watch, found)]


def _differences(watch: Watch, found: dict[str, object]) -> Iterator[str]:
    if watch.failure:
        yield watch.failure
    if not found:
        yield f"the reader did not end within {DRAIN_S:.0f} s"
    elif found["error"]:
        yield f"reader: {found['error']}"
    elif found["positions"] != watch.acked:
        yield f"acknowledged up to {watch.acked}, read up to {found['positions']}"


async def _start(column: Column, folder: Path) -> asyncio.subprocess.Process:
    log = os.open(folder / "stderr.log", os.O_CREAT | os.O_WRONLY)
    try:
        return await asyncio.create_subprocess_exec(
            *command(column, folder / "data", "127.0.0.1:0", None),
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
        )
    finally:
        os.close(log)


async def main(options: argparse.Namespace) -> int:
    """Run the broker and the load; return the exit code."""
    folder = Path(tempfile.mkdtemp(prefix="korvet-budget-", dir=options.folder))
    column = Column(options.format, True, (f"local.memory.bytes={options.memory}",))
    broker = await _start(column, folder)
    watch = Watch(folder, broker.pid)
    try:
        assert broker.stdout is not None
        line = (await asyncio.wait_for(broker.stdout.readline(), 30)).decode()
        watching = asyncio.create_task(watch.run())
        wrong = await _load(options, watch, line.removeprefix("listening on ").strip())
        watching.cancel()
        watch.sample()
    finally:
        await stop(broker)
        said = (folder / "stderr.log").read_text()
        shutil.rmtree(folder, ignore_errors=True)
    if watch.peak > options.memory:
        wrong.append(f"used_memory was {watch.peak / 1e6:.0f} MB")
    if "Traceback" in said or "level=error" in said:
        wrong.append("the broker logged errors, the last: " + said.strip().splitlines()[-1])
    if not watch.samples:
        wrong.append("Redis was never sampled")
    count = sum(watch.acked)
    print(
        f"{'FAIL: ' + '; '.join(wrong) if wrong else 'PASS'}: {count} records, "
        f"{count * SIZE / 1e9:.1f} GB in {options.seconds:.0f} s "
        f"({count * SIZE / options.seconds / 1e6:.0f} MB/s), layout {options.format}; used_memory "
        f"at most {watch.peak / 1e6:.0f} of {options.memory / 1e6:.0f} MB ({watch.samples} "
        f"samples), disk at most {watch.disk_peak / 1e9:.1f} GB"
    )
    return 1 if wrong else 0


def options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.budget", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--memory", type=int, default=1 << 30, help="local.memory.bytes")
    parser.add_argument("--format", choices=("batch", "record"), default="batch")
    parser.add_argument(
        "--disk", type=int, default=24 << 30, help="bytes at which the producer waits"
    )
    parser.add_argument("--folder", help="where the data directory is made, and deleted")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(asyncio.run(main(options())))
