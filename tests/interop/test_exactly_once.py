"""Exactly once over kill -9: of the application, of the broker, of the broker with its Redis.

KORVET_SEEDS says how many seeds are tried; every one is another order of deaths.
"""

import os
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

from tests.interop import librdkafka
from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic, topic_name
from tests.interop.test_transactions import COMMITTED, values, write

pytestmark = pytest.mark.korvet_only

SEEDS = int(os.environ.get("KORVET_SEEDS", "2"))
RECORDS = 600
DEATHS = 6
PATIENCE_S = 120.0


class Application:
    """The copying process, started anew whenever it has ended."""

    def __init__(self, *words: str, log: Path) -> None:
        self._words = [sys.executable, "-m", "tests.interop.transformer", *words]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def keep_alive(self) -> None:
        """It runs."""
        if self._process is None or self._process.poll() is not None:
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(self._words, stdout=log, stderr=log)

    def kill(self) -> None:
        """It is gone without a last word."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_input_is_output_once_whoever_dies(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    broker = Broker(
        tmp_path,
        {
            "group.initial.rebalance.delay.ms": "0",
            "storage.format": random.choice(["record", "batch"]),
            "offset.mode": random.choice(["time", "dense"]),
        },
    )
    broker.start()
    name, address = topic_name("copy"), broker.address
    origin, result = create_topic(address, partitions=2), create_topic(address, partitions=2)
    sent = [f"{n:04}" for n in range(RECORDS)]
    write(librdkafka.producer(address), origin, sent, 2)
    application = Application(address, name, origin, result, log=tmp_path / "application.log")
    try:
        for _ in range(DEATHS):
            application.keep_alive()
            time.sleep(random.uniform(0.1, 1.5))
            victim = random.choice(["application", "broker", "everything", "both"])
            if victim in ("application", "both"):
                application.kill()
            if victim in ("broker", "both"):
                broker.kill()
                broker.start()
            if victim == "everything":
                broker.kill_everything()
                broker.start()
        deadline = time.monotonic() + PATIENCE_S
        found: list[str] = []
        while len(found) < RECORDS and time.monotonic() < deadline:
            application.keep_alive()
            time.sleep(0.5)
            found = values(address, result, COMMITTED, 2)
    finally:
        application.kill()
        broker.close()
    assert found == sent
