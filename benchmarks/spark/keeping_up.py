"""Measure whether an archiver keeps up.

    python -m benchmarks.spark.keeping_up [--rate N] [--seconds N]

Runs a fresh broker with a separate Redis, a producer of 100 B records at a fixed rate, and
`korvet pipeline archive --every`. The archiver trims records 30 s after archiving them.
Prints one JSON line:

- the produced rate, the lag of the table at each commit, and the sizes of the table's files;
- CPU and memory of broker and archiver;
- the max memory of Redis and the archiver in each third of the time.

Then prints a verdict, with exit code 1 if a condition failed:

- the producer reached its rate, so the broker was not starved;
- each commit was done before the next round was due;
- files have the target size: at least half of it, at most a quarter above;
- memory stopped growing: Redis and the archiver used at most a fifth more in the last third than
in the second.

Run nothing else on the machine.
"""

import argparse
import asyncio
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.fresh import Column, Running, korvet
from korvet.cli import pipeline
from korvet.testing.bench.load import cpu_seconds, own_bytes, resident_bytes

TOPIC = "busy"
PARTITIONS = 4
VALUE = 100
KEPT = "30s"


class CommitReport(NamedTuple):
    """A commit as the archiver printed it, and the records produced by then."""

    at: float
    records: int
    seconds: float
    sent: int


class MemorySample(NamedTuple):
    """Memory usage at one time."""

    at: float
    store: int
    archiver: int


def main() -> None:
    """Run one measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=50_000)
    parser.add_argument("--seconds", type=int, default=180)
    parser.add_argument("--every", default="20s")
    parser.add_argument("--target-file-size", default="32m")
    parser.add_argument("--format", default="parquet")
    parser.add_argument("--layout", default="batch")
    given = parser.parse_args()
    line = asyncio.run(measured(given))
    print(json.dumps(line), flush=True)
    wrong = complaints(line, given)
    print(f"no: {'; '.join(wrong)}" if wrong else "yes: it kept up", flush=True)
    sys.exit(1 if wrong else 0)


async def measured(given: argparse.Namespace) -> dict[str, Any]:
    """Return the result as a JSON line."""
    folder = Path(tempfile.mkdtemp(prefix="korvet-bench-"))
    try:
        async with korvet(Column(given.layout, False)) as running:
            return await asyncio.to_thread(_with_archiver, running, given, folder / "lake")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def complaints(line: dict[str, Any], given: argparse.Namespace) -> list[str]:
    """Return the failed conditions."""
    found = []
    if line["produced_per_s"] < 0.98 * given.rate:
        found.append(f"only {line['produced_per_s']} records/s could be produced")
    every = pipeline.milliseconds("--every", given.every) / 1000
    if line["behind_s_most"] > every:
        found.append(f"the table was {line['behind_s_most']} s behind when a commit was done")
    target = pipeline.size("--target-file-size", given.target_file_size) / 2**20
    if not 0.5 * target <= line["file_mb_median"] <= 1.25 * target:
        found.append(f"files have {line['file_mb_median']} MiB")
    for name in ("redis_mb_most", "archiver_mb_most"):
        _, second, third = line[name]
        if third > 1.2 * second:
            found.append(f"memory still grows: {name} {line[name]}")
    if line["missing_or_double"]:
        found.append(f"{line['missing_or_double']} records are missing or double")
    return found


def _with_archiver(running: Running, given: argparse.Namespace, lake: Path) -> dict[str, Any]:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": running.address})
    for future in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values():
        future.result(30)
    producer = Producing(running.address, given.rate)
    archiver = _archiver(running, given, lake)
    reports: list[CommitReport] = []
    listener = threading.Thread(target=_listen, args=(archiver, producer, reports))
    listener.start()
    try:
        producer.one()
        while not reports:
            if archiver.poll() is not None:
                raise RuntimeError(f"the archiver ended with {archiver.returncode}")
            time.sleep(0.1)
        reports.clear()
        roots = (running.pids, [archiver.pid])
        cpu = [cpu_seconds(each) for each in roots]
        began = time.monotonic()
        seen: list[MemorySample] = []
        watching = threading.Event()
        watcher = threading.Thread(target=_watch, args=(running, archiver, seen, watching))
        watcher.start()
        producer.run(given.seconds)
        seconds = time.monotonic() - began
        watching.set()
        watcher.join()
        spent = [cpu_seconds(each) for each in roots]
    finally:
        archiver.send_signal(signal.SIGTERM)
        listener.join(120)
        archiver.wait(60)
    sizes = [file.stat().st_size / 2**20 for file in lake.rglob("part-*.parquet")]
    sizes = sizes or [file.stat().st_size / 2**20 for file in lake.rglob("data/**/*.parquet")]
    commits = _lags([each for each in reports if each.at <= began + seconds])
    spent_committing = sum(each.seconds for each, _ in commits)
    return {
        "case": "keeping up",
        "format": given.format,
        "layout": given.layout,
        "produced_per_s": round(producer.sent / seconds),
        "seconds": round(seconds),
        "commits": len(commits),
        "commit_records_median": _median([each.records for each, _ in commits]),
        "commit_s_median": _median([each.seconds for each, _ in commits]),
        "archived_per_s_of_commits": round(
            sum(each.records for each, _ in commits) / max(spent_committing, 0.001)
        ),
        "behind_s_median": _median([behind / given.rate for _, behind in commits]),
        "behind_s_most": round(
            max((behind for _, behind in commits), default=producer.sent) / given.rate, 2
        ),
        "file_mb_median": _median(sizes),
        "files": len(sizes),
        "redis_mb_most": _thirds(began, seconds, [(each.at, each.store) for each in seen]),
        "archiver_mb_most": _thirds(began, seconds, [(each.at, each.archiver) for each in seen]),
        "broker_cpu_share": round((spent[0] - cpu[0]) / seconds, 2),
        "archiver_cpu_share": round((spent[1] - cpu[1]) / seconds, 2),
        "missing_or_double": producer.sent - _verified(running, given, lake),
    }


def _lags(commits: Sequence[CommitReport]) -> list[tuple[CommitReport, int]]:
    """Return each commit with the number of produced records that were not archived by then."""
    archived, found = 0, []
    for each in commits:
        archived += each.records
        found.append((each, each.sent - archived))
    return found


def _median(values: Sequence[float]) -> float:
    return round(statistics.median(values), 2) if values else 0.0


def _thirds(began: float, seconds: float, seen: Sequence[tuple[float, int]]) -> list[int]:
    """Return the max MiB in each third of the time."""
    found = [0, 0, 0]
    for at, size in seen:
        third = min(2, int(3 * (at - began) / seconds))
        found[third] = max(found[third], size >> 20)
    return found


def _job(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "korvet", "pipeline", *words, "--master", "local[2]"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def _where(running: Running, given: argparse.Namespace) -> list[str]:
    return ["--format", given.format, "--redis", str(running.store)]


def _archiver(running: Running, given: argparse.Namespace, lake: Path) -> subprocess.Popen[str]:
    words = ["--every", given.every, "--target-file-size", given.target_file_size]
    words += ["--delete-archived-before", KEPT, *_where(running, given)]
    return _job("archive", TOPIC, "--to", str(lake), *words)


def _verified(running: Running, given: argparse.Namespace, lake: Path) -> int:
    """Archive and verify the rest; return the table's number of rows."""
    for words in (["archive", TOPIC, "--to", str(lake)], ["verify", TOPIC, str(lake)]):
        with _job(*words, *_where(running, given)) as process:
            said, _ = process.communicate(timeout=300)
            if process.returncode:
                raise RuntimeError(said)
    return int(said.rpartition("equal: ")[2].split()[0])


def _listen(
    archiver: subprocess.Popen[str], producer: "Producing", reports: list[CommitReport]
) -> None:
    assert archiver.stdout is not None
    for line in archiver.stdout:
        if line.startswith("{"):
            commit = json.loads(line)
            reports.append(
                CommitReport(time.monotonic(), commit["records"], commit["seconds"], producer.sent)
            )


def _watch(
    running: Running,
    archiver: subprocess.Popen[str],
    seen: list[MemorySample],
    stop: threading.Event,
) -> None:
    store = running.pids[-1]
    while not stop.wait(0.5):
        resident = resident_bytes([archiver.pid])
        seen.append(MemorySample(time.monotonic(), own_bytes(store), resident))


class Producing:
    """A producer of incompressible records at a fixed rate, in steps of 20 ms."""

    def __init__(self, address: str, rate: int) -> None:
        from confluent_kafka import Producer

        options: dict[str, Any] = {"bootstrap.servers": address, "linger.ms": 20}
        options |= {"compression.type": "lz4", "queue.buffering.max.messages": 1_000_000}
        self._producer = Producer(options)
        self._rate = rate
        self.sent = 0

    def one(self) -> None:
        """Produce a single record."""
        self._send(1)
        self._producer.flush(60)

    def run(self, seconds: int) -> None:
        """Produce records at the rate until the time is over."""
        began, before = time.monotonic(), self.sent
        while (spent := time.monotonic() - began) < seconds:
            self._send(before + int(spent * self._rate) - self.sent)
            self._producer.poll(0)
            time.sleep(0.02)
        self._producer.flush(60)

    def _send(self, count: int) -> None:
        values = os.urandom(VALUE * count)
        for n in range(count):
            value = values[n * VALUE : (n + 1) * VALUE]
            while True:
                try:
                    self._producer.produce(
                        TOPIC, value=value, partition=self.sent // 1000 % PARTITIONS
                    )
                    break
                except BufferError:  # the broker is slower than the rate
                    self._producer.poll(0.1)
            self.sent += 1


if __name__ == "__main__":
    main()
