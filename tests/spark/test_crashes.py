"""Check that no record is lost or doubled if drivers, Python processes or the broker are killed."""

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from confluent_kafka import OFFSET_BEGINNING, Producer, TopicPartition

from korvet.embedded_redis.socket import socket_path
from korvet.store.sync_store import SyncStore
from tests.interop import librdkafka
from tests.interop.brokers import Broker
from tests.spark.data_source_driver import read
from tests.spark.spark_sessions import PROJECT, environment
from tests.spark.topic_log import Log, plain

pytestmark = pytest.mark.spark

PATIENCE_S = 400
FORMS = os.environ.get("KORVET_TEST_LAYOUTS", "record").split(",")
LAYOUTS = (("batch", "dense"), ("record", "time"))


class Driver:
    """The copy job as a process, with all processes that Spark starts for it."""

    def __init__(self, url: str, checkpoint: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.copy_job", url, str(checkpoint)],
            cwd=PROJECT,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def next_batch(self) -> None:
        """Wait for a batch of this process."""
        assert self._process.stdout is not None
        assert self._process.stdout.readline().startswith("batch"), "the job ended by itself"

    def alive(self) -> bool:
        """Return whether the job is still running."""
        return self._process.poll() is None

    def kill_workers(self) -> int:
        """Kill the Python processes that run its tasks; return how many."""
        found = []
        for process in psutil.Process(self._process.pid).children(recursive=True):
            # A process that Spark has just ended is a zombie, or gone.
            with suppress(psutil.NoSuchProcess):
                words = process.cmdline()
                if "pyspark.daemon" in words and words[-1] == "pyspark.worker":
                    found.append(process)
        # The first is the daemon, the parent of the others.
        for process in found[1:]:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        return len(found[1:])

    def kill(self) -> None:
        """Kill the whole process group without a chance to clean up."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


def test_a_stream_whose_driver_is_killed_repeatedly_writes_each_record_once(
    log: Log, tmp_path: Path
) -> None:
    topics = [log.create(f"s-{form}", 3, form, mode) for form, mode in LAYOUTS]
    for form, mode in LAYOUTS:
        log.create(f"copy-{form}", 2, form, mode)
    draw = random.Random(11)
    for n in range(9):
        for topic in topics:
            log.append(topic, n % 3, plain(100, since=n * 1000))
    for _ in range(2):
        driver = Driver(log.url, tmp_path / "check")
        try:
            for n in range(draw.randint(1, 3)):
                since = draw.randrange(10**6)
                log.append(topics[n % 2], draw.randrange(3), plain(50, since=since))
                driver.next_batch()
            before = entries(log)
            for partition in range(3):
                for topic in topics:
                    log.append(topic, partition, plain(150, since=draw.randrange(10**6)))
            # Kill it with part of a batch appended, before Spark has committed.
            wait_for_entries(log, before, driver)
        finally:
            driver.kill()
    wanted = {
        form: sorted(
            record[3] or b""
            for (name, _), records in log.written.items()
            if name == f"s-{form}"
            for record in records
        )
        for form, _ in LAYOUTS
    }
    driver = Driver(log.url, tmp_path / "check")
    try:
        end = time.monotonic() + PATIENCE_S
        while len(copied(log)) < sum(map(len, wanted.values())) and time.monotonic() < end:
            driver.next_batch()
    finally:
        driver.kill()
    assert {form: sorted(copied(log, f"copy-{form}")) for form in wanted} == wanted


@pytest.mark.parametrize("form", FORMS)
def test_a_stream_outlives_its_python_processes_and_the_broker_with_its_redis(
    form: str, tmp_path: Path
) -> None:
    sent: list[bytes] = []
    url = f"unix://{socket_path(tmp_path / 'broker' / 'data')}"
    with Broker(tmp_path / "broker") as broker, SyncStore.connect(url) as store:
        log = Log(store, url)
        log.create("s", 3, form)
        log.create("copy", 2, form)
        sink = librdkafka.producer(broker.address, enable_idempotence=True)
        produce(sink, sent, 500)
        driver = Driver(url, tmp_path / "check")
        try:
            driver.next_batch()
            for _ in range(2):
                before = entries(log)
                produce(sink, sent, 900)
                wait_for_entries(log, before, driver)
                assert driver.kill_workers()
                driver.next_batch()
            broker.kill_everything()
            broker.start()
            assert driver.alive()
            produce(sink, sent, 300)
            end = time.monotonic() + PATIENCE_S
            while len(copied(log)) < len(sent) and time.monotonic() < end:
                driver.next_batch()
        finally:
            driver.kill()
        assert sorted(consumed(broker, "s", 3)) == sent
        assert sorted(consumed(broker, "copy", 2)) == sent


def produce(sink: Producer, sent: list[bytes], count: int) -> None:
    """Produce records to topic `s`."""
    for _ in range(count):
        sent.append(b"%06d" % len(sent))
        sink.produce("s", sent[-1], partition=len(sent) % 3)
    assert sink.flush(PATIENCE_S) == 0


def consumed(broker: Broker, topic: str, partitions: int) -> list[bytes]:
    """Return the values that a Kafka consumer finds up to the end of each partition."""
    source = librdkafka.consumer(broker.address)
    try:
        found = []
        for number in range(partitions):
            partition = TopicPartition(topic, number, OFFSET_BEGINNING)
            _, end = source.get_watermark_offsets(partition, timeout=30)
            source.assign([partition])
            while source.position([partition])[0].offset < end:
                found += [message.value() for message in source.consume(500, timeout=0.2)]
        return found
    finally:
        source.close()


def entries(log: Log) -> int:
    """Return the number of entries in topics `copy...`."""
    names = log.store.command("KEYS", "korvet:copy*:[01]")
    return sum(int(log.store.command("XLEN", name)) for name in names)


def wait_for_entries(log: Log, before: int, driver: Driver) -> None:
    """Wait until the driver appends to a topic `copy...`."""
    while entries(log) == before:
        assert driver.alive()
        time.sleep(0.002)


def copied(log: Log, name: str = "copy") -> list[bytes]:
    """Return the values in the topics whose names begin so."""
    rows = read(log.url, subscribePattern=f"^{name}", columns="value")
    return [row["value"] for row in rows]
