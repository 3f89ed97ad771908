"""Archive, trim and verify while driver and broker are killed and producers run.

KORVET_TEST_KILLS: kills of the driver per format (default 2). KORVET_TEST_SOAK_S: min duration in
s.
KORVET_TEST_SEED: seed of the kill times.
"""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, Producer

from korvet.spark.options import Connection
from korvet.spark.pipeline.archive import ArchiveJob, Archiver, open_table
from korvet.spark.pipeline.commit_metadata import UNKNOWN
from korvet.spark.pipeline.verify import verify_archive
from tests.spark.pipeline.archive_readers import offsets_in
from tests.spark.pipeline.conftest import QUICK, location_for
from tests.support.ports import free_port
from tests.support.redis_servers import server

pytestmark = pytest.mark.spark

KILLS = int(os.environ.get("KORVET_TEST_KILLS", "2"))
SOAK_S = float(os.environ.get("KORVET_TEST_SOAK_S", "0"))
SEED = os.environ.get("KORVET_TEST_SEED", "1")
PROJECT = Path(__file__).parents[3]
PARTITIONS = 3


def korvet(*arguments: str) -> subprocess.Popen[str]:
    """Start the command in its own process group."""
    return subprocess.Popen(
        [sys.executable, "-m", "korvet", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=PROJECT,
        start_new_session=True,
    )


def done(*arguments: str) -> str:
    """Wait for the command and return its output; expect exit code 0."""
    with korvet(*arguments) as process:
        said, _ = process.communicate(timeout=240)
        assert process.returncode == 0, said
        return said


def kill(process: subprocess.Popen[str]) -> None:
    """Kill the process group."""
    process.send_signal(signal.SIGKILL)
    process.communicate()


class Broker:
    """A broker that can be killed and restarted at the same address."""

    def __init__(self, redis: str) -> None:
        self._redis = redis
        self.address = f"127.0.0.1:{free_port()}"
        self.start()

    def start(self) -> None:
        self._process = korvet("--listen", self.address, "--redis", self._redis)
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().split()[-1]

    def kill(self) -> None:
        kill(self._process)


class Producing:
    """A thread that produces to the topic until stopped, and collects acknowledged records."""

    def __init__(self, address: str) -> None:
        self.acknowledged: set[tuple[str, int, int]] = set()
        self._stop = threading.Event()
        self._producer = Producer(
            {"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 5}
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(0.1):
            for _ in range(20):
                number += 1
                self._producer.produce(
                    "orders",
                    value=b"%012d" % number,
                    partition=number % PARTITIONS,
                    on_delivery=self._delivered,
                )
            self._producer.poll(0)
        self._producer.flush(60)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            location = (message.topic(), message.partition(), message.offset())
            self.acknowledged.add(location)  # type: ignore[arg-type]

    def stop(self) -> set[tuple[str, int, int]]:
        """Stop and return the acknowledged records."""
        self._stop.set()
        self._thread.join()
        return self.acknowledged


@contextmanager
def running(redis: str) -> Iterator[Broker]:
    broker = Broker(redis)
    try:
        yield broker
    finally:
        broker.kill()


def quick(spark: Any, format: str) -> tuple[str, ...]:
    """Return settings for a fast start of the driver: no lookups, no optimized compilation."""
    pairs = {"spark.driver.extraJavaOptions": QUICK, "spark.sql.shuffle.partitions": "2"}
    if format != "parquet":
        pairs["spark.jars"] = spark.conf.get("spark.jars")
    return tuple(word for name, value in pairs.items() for word in ("--conf", f"{name}={value}"))


def one_kill(archive: Sequence[str], draw: random.Random, between: Callable[[], None]) -> None:
    """Run an archiver for some time and kill it."""
    driver = korvet(*archive, "--every", "50ms", "--batch-records", "300")
    assert driver.stdout is not None
    for _ in range(draw.randint(0, 3)):
        driver.stdout.readline()
    between()
    # The kill happens at a random time within a round.
    threading.Event().wait(draw.uniform(0.0, 1.0))
    kill(driver)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("format", "layout"), [("parquet", "record"), ("delta", "batch"), ("iceberg", "batch")]
)
def test_no_kill_at_any_moment_loses_or_duplicates_a_record(
    spark: Any, tmp_path: Path, format: str, layout: str
) -> None:
    draw = random.Random(f"{format}-{KILLS}-{SEED}")
    location = location_for(spark, tmp_path, format)
    kills = verified = 0
    with server("valkey") as redis, running(redis.url) as broker:
        where = ("--redis", redis.url)
        layout_config = ("--config", f"storage.format={layout}")
        done("topics", "create", "orders", "-p", str(PARTITIONS), *layout_config, *where)
        archive = (
            "pipeline",
            "archive",
            "orders",
            "--to",
            location.path,
            "--format",
            format,
            *where,
        )
        archive = (*archive, *quick(spark, format), "--master", "local[2]")
        archive = (*archive, "--delete-archived-before", "1s")

        def compare() -> None:
            """Compare log and table while records are produced, archived and trimmed."""
            nonlocal verified
            if Path(location.path).exists():
                table = open_table(spark, location)
                verdict = verify_archive(spark, table, Connection(redis.url), ["orders"])
                strange = {*verdict.problems, *(p for e in verdict.partitions for p in e.problems)}
                assert strange <= {"nothing of it has been archived"}, verdict
                verified += 1

        producing = Producing(broker.address)
        began = time.monotonic()
        try:
            while kills < KILLS or time.monotonic() < began + SOAK_S:
                one_kill(archive, draw, compare if kills % 2 else lambda: None)
                kills += 1
                if kills % 2:
                    broker.kill()
                    broker.start()
        finally:
            acknowledged = producing.stop()
        table = open_table(spark, location, "bytes")
        job = ArchiveJob(Connection(redis.url), ("orders",), trim_older_ms=1000)
        Archiver(spark, table, job).catch_up(lambda _: None)
        table.compact(128 << 20)
        verdict = verify_archive(spark, table, Connection(redis.url), ["orders"])
        assert verdict.equal, verdict
        assert table.state().checksum != UNKNOWN
        found = offsets_in(Path(location.path), format)
        assert len(found) == len(set(found))
        # A record may be stored although its acknowledgement was lost with the broker.
        assert acknowledged <= set(found)
    seconds = time.monotonic() - began
    sys.stderr.write(
        f"{format}: {kills} kills of the driver in {seconds:.0f} s, {len(found)} rows in "
        f"{table.state().number} commits, {verified} times verified meanwhile\n"
    )
