"""Check exactly-once processing over kill -9 of application, broker, and broker with Redis.

KORVET_SEEDS is the number of seeds; each has another order of kills. The applications then have
their clients' default settings: after a kill an application is idle for the 45 s of its session.
Without KORVET_SEEDS there is one seed, and the sessions are short.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from tests.interop import librdkafka
from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic, topic_name
from tests.interop.jvm import Jvm
from tests.interop.test_transactions import COMMITTED, values, write

pytestmark = [pytest.mark.korvet_only, pytest.mark.slow]

HURRIED = "KORVET_SEEDS" not in os.environ
SEEDS = int(os.environ.get("KORVET_SEEDS", "1"))
SHORT_SESSION = ["session.timeout.ms=1500", "heartbeat.interval.ms=300"]
DEATHS = 3 if HURRIED else 6
VICTIMS = ["application", "broker", "everything", "both"]
RECORDS = 150
"""Records between two kills: some tenths of a second of work."""
PATIENCE_S = 150.0


class Application:
    """The process of an application, started again if it has ended."""

    def __init__(self, words: list[str], log: Path) -> None:
        self._words = words
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def keep_alive(self) -> None:
        """Start the process unless it runs."""
        if self._process is None or self._process.poll() is not None:
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(self._words, stdout=log, stderr=log)

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class Reader:
    """A consumer with isolation.level=read_committed that runs during all kills."""

    def __init__(self, address: str, topic: str) -> None:
        self.found: list[str] = []
        self._source: Consumer = librdkafka.consumer(
            address, isolation_level=COMMITTED, reconnect_backoff_max_ms=100
        )
        librdkafka.assign(
            self._source, [TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(2)]
        )

    def wait_for(self, count: int, application: Application) -> None:
        """Wait until `count` records were read, and keep the application running."""
        deadline = time.monotonic() + PATIENCE_S
        while len(self.found) < count and time.monotonic() < deadline:
            application.keep_alive()
            for message in self._source.consume(100, timeout=0.1):
                if not message.error():
                    self.found.append(message.value().decode())

    def close(self) -> None:
        """Close the consumer."""
        self._source.close()


@pytest.fixture(params=["librdkafka", "java"])
def program(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """The command that starts the application."""
    if request.param == "librdkafka":
        yield [sys.executable, "-m", "tests.interop.transformer"]
    else:
        java: Jvm = request.getfixturevalue("java")
        yield java.words("Transform")


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_input_is_output_once_despite_kills(
    tmp_path: Path, program: list[str], seed: int
) -> None:
    random = Random(seed)
    settings = {
        "storage.format": random.choice(["record", "batch"]),
        "offset.mode": random.choice(["time", "dense"]),
    }
    broker = Broker(tmp_path, settings)
    broker.start()
    name, address = topic_name("copy"), broker.address
    origin, result = create_topic(address, partitions=2), create_topic(address, partitions=2)
    words = [*program, address, name, origin, result, *(SHORT_SESSION if HURRIED else ())]
    application = Application(words, tmp_path / "application.log")
    reader, writer = Reader(address, result), librdkafka.producer(address)
    sent = [f"{n:04}" for n in range(RECORDS * (DEATHS + 1))]
    try:
        for life in range(DEATHS + 1):
            write(writer, origin, sent[life * RECORDS : (life + 1) * RECORDS], 2)
            if life < DEATHS:
                reader.wait_for(life * RECORDS + random.randrange(RECORDS), application)
                die(
                    random.choice(["application", "broker", "everything", "both"]),
                    application,
                    broker,
                )
        reader.wait_for(len(sent), application)
        assert sorted(reader.found) == sent
        assert values(address, result, COMMITTED, 2) == sent
    finally:
        application.kill()
        reader.close()
        broker.close()


def die(victim: str, application: Application, broker: Broker) -> None:
    """Kill the victim with signal 9; start the broker again if it was killed."""
    if victim in ("application", "both"):
        application.kill()
    if victim in ("broker", "both"):
        broker.kill()
        broker.start()
    if victim == "everything":
        broker.kill_everything()
        broker.start()
