"""Whether an archiver keeps up: `python -m benchmarks.spark.keeping_up [--rate N] [--seconds N]`.

A fresh broker with a Redis of its own, a producer of so many records of 100 B a second, and
`korvet pipeline archive --every` beside them. One JSON line: the rate that was produced, what was
archived a minute, how far behind the table was each time a commit was done and at the end, the
sizes of the table's files, and the CPU of broker and archiver. Nothing else should run here.
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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import processes
from benchmarks.fresh import Column, Running, korvet

TOPIC = "busy"
PARTITIONS = 4


def main() -> None:
    """Measures once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=50_000)
    parser.add_argument("--seconds", type=int, default=180)
    parser.add_argument("--every", default="20s")
    parser.add_argument("--target-file-size", default="32m")
    parser.add_argument("--format", default="parquet")
    parser.add_argument("--layout", default="batch")
    given = parser.parse_args()
    print(json.dumps(asyncio.run(measured(given))), flush=True)


async def measured(given: argparse.Namespace) -> dict[str, Any]:
    """The line."""
    folder = Path(tempfile.mkdtemp(prefix="korvet-bench-"))
    try:
        async with korvet(Column(given.layout, False)) as running:
            return await asyncio.to_thread(_beside, running, given, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _beside(running: Running, given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": running.address})
    for future in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values():
        future.result(30)
    archiver = _archiver(running, given, folder / "lake")
    heard: list[tuple[float, int, float]] = []
    listener = threading.Thread(target=lambda: heard.extend(_heard(archiver)))
    listener.start()
    before = processes.cpu_seconds(running.pids)
    began = time.monotonic()
    produced = _produce(running.address, given.rate, given.seconds)
    seconds = time.monotonic() - began
    broker_cpu = processes.cpu_seconds(running.pids) - before
    archiver_cpu = processes.cpu_seconds([archiver.pid])
    archiver.send_signal(signal.SIGTERM)
    listener.join(120)
    archiver.wait(60)
    archived = sum(records for _, records, _ in heard)
    during = [each for each in heard if each[0] <= began + seconds]
    files = [file.stat().st_size for file in (folder / "lake").rglob("*.parquet")]
    return {
        "case": "keeping up",
        "format": given.format,
        "layout": given.layout,
        "produced_per_s": round(produced / seconds),
        "seconds": round(seconds),
        "commits": len(during),
        "commit_records_median": _median([records for _, records, _ in during]),
        "commit_s_median": _median([spent for _, _, spent in during]),
        "archived_while_producing": sum(records for _, records, _ in during),
        "waiting_at_the_end": produced - archived,
        "file_mb_median": _median([size / 2**20 for size in files]),
        "files": len(files),
        "broker_cpu_share": round(broker_cpu / seconds, 2),
        "archiver_cpu_share": round(archiver_cpu / seconds, 2),
    }


def _median(values: list[float] | list[int]) -> float:
    return round(statistics.median(values), 2) if values else 0.0


def _archiver(running: Running, given: argparse.Namespace, lake: Path) -> subprocess.Popen[str]:
    words = ["pipeline", "archive", TOPIC, "--to", str(lake), "--format", given.format]
    words += ["--every", given.every, "--target-file-size", given.target_file_size]
    words += ["--delete-archived-before", "1m", "--master", "local[2]"]
    return subprocess.Popen(
        [sys.executable, "-m", "korvet", *words, "--redis", str(running.store)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def _heard(archiver: subprocess.Popen[str]) -> Iterator[tuple[float, int, float]]:
    """Each commit: when it was told, its records, and its seconds."""
    assert archiver.stdout is not None
    for line in archiver.stdout:
        if line.startswith("{"):
            told = json.loads(line)
            yield time.monotonic(), told["records"], told["seconds"]


def _produce(address: str, rate: int, seconds: int) -> int:
    """So many records a second, in steps of 20 ms; how many there were."""
    from confluent_kafka import Producer

    options: dict[str, Any] = {"bootstrap.servers": address, "linger.ms": 20}
    options |= {"compression.type": "lz4", "queue.buffering.max.messages": 1_000_000}
    producer = Producer(options)
    values = [os.urandom(100) for _ in range(1000)]
    began, sent = time.monotonic(), 0
    while (spent := time.monotonic() - began) < seconds:
        for n in range(sent, int(spent * rate)):
            producer.produce(TOPIC, value=values[n % 1000], partition=n // 1000 % PARTITIONS)
        sent = max(sent, int(spent * rate))
        producer.poll(0)
        time.sleep(0.02)
    producer.flush(60)
    return sent


if __name__ == "__main__":
    main()
