"""Drivers die with everything they started, at any moment, while records come in."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.spark.driving import read
from tests.spark.logs import Log, plain
from tests.spark.sessions import PROJECT, environment

PATIENCE_S = 120


class Driver:
    """The relay job as a process, with all that Spark starts for it."""

    def __init__(self, url: str, checkpoint: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.relay", url, str(checkpoint)],
            cwd=PROJECT,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def next_batch(self) -> None:
        """A batch of this life is done."""
        assert self._process.stdout is not None
        assert self._process.stdout.readline().startswith("batch"), "the job ended by itself"

    def alive(self) -> bool:
        """The job has not ended by itself."""
        return self._process.poll() is None

    def kill(self) -> None:
        """Nothing of it is left, and nothing was tidied up."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


@pytest.mark.parametrize(("form", "mode"), [("batch", "dense"), ("record", "time")])
def test_a_stream_whose_driver_is_killed_again_and_again_loses_and_doubles_nothing(
    log: Log, form: str, mode: str, tmp_path: Path
) -> None:
    topic = log.create("s", 3, form, mode)
    log.create("copy", 2, form, mode)
    draw = random.Random(11)
    for n in range(9):
        log.append(topic, n % 3, plain(200, since=n * 1000))
    for _ in range(2):
        driver = Driver(log.url, tmp_path / "check")
        try:
            for _ in range(draw.randint(1, 3)):
                log.append(topic, draw.randrange(3), plain(50, since=draw.randrange(10**6)))
                driver.next_batch()
            before = entries(log)
            for partition in range(3):
                log.append(topic, partition, plain(300, since=draw.randrange(10**6)))
            # It dies with some of a batch appended, and Spark not told.
            while entries(log) == before:
                assert driver.alive()
        finally:
            driver.kill()
    wanted = sorted(r[3] or b"" for records in log.written.values() for r in records)
    driver = Driver(log.url, tmp_path / "check")
    try:
        end = time.monotonic() + PATIENCE_S
        while len(found := copied(log)) < len(wanted) and time.monotonic() < end:
            driver.next_batch()
    finally:
        driver.kill()
    assert sorted(found) == wanted


def entries(log: Log) -> int:
    """How many entries topic `copy` has."""
    return sum(int(log.store.command("XLEN", f"korvet:copy:{n}")) for n in range(2))


def copied(log: Log) -> list[bytes]:
    return [row["value"] for row in read(log.url, subscribe="copy", columns="value")]
