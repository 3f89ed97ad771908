"""Check that a log of ten times the memory budget is read back complete.

`python -m korvet` has its defaults except for the budget. It is killed once in the middle.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.interop import large_log
from tests.interop.brokers import EXTERNAL, Broker
from tests.interop.jvm import Jvm
from tests.interop.large_log import TOPICS, Content, MemoryWatch, Place
from tests.spark.spark_sessions import QUICK, collect_sockets, session

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(EXTERNAL), reason="of Korvet's embedded server"),
]
BUDGET = 40 << 20
SIZE = 10 * BUDGET
TOLERANCE = 1.05
"""Factor of the budget: on a busy machine 2 MB arrive between two reads of the used memory."""


class Filled:
    """A broker that has stored SIZE bytes, and the records it has acknowledged."""

    def __init__(self, broker: Broker, written: dict[Place, Content], peak: int) -> None:
        self.broker = broker
        self.written = written
        self.peak = peak

    @property
    def count(self) -> int:
        return sum(each.count for each in self.written.values())

    @property
    def ordered(self) -> dict[Place, tuple[int, str]]:
        return {place: each.ordered for place, each in self.written.items()}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    broker = Broker(tmp_path_factory.mktemp("large"), {"local.memory.bytes": str(BUDGET)})

    def kill() -> None:
        broker.kill()
        broker.start()

    with broker:
        large_log.create(broker.address)
        with MemoryWatch(broker.folder / "data") as memory:
            written = large_log.write(broker.address, SIZE, kill)
        assert memory.samples
        yield Filled(broker, written, memory.peak)
    assert "Traceback" not in broker.log


@pytest.fixture(scope="module", autouse=True)
def no_sockets_left() -> Iterator[None]:
    """Collect the sockets that Spark leaves open, in this module."""
    yield
    collect_sockets()


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with session("local[2]", spark__driver__extraJavaOptions=QUICK) as running:
        yield running


def test_redis_stays_within_its_budget(filled: Filled) -> None:
    assert SIZE * 0.99 < filled.count * large_log.VALUE_BYTES <= SIZE
    assert filled.peak <= BUDGET * TOLERANCE


def test_the_segments_are_in_the_data_directory(filled: Filled) -> None:
    found = (filled.broker.folder / "data" / "segments").rglob("*.segment")
    assert sum(path.stat().st_size for path in found) > SIZE * 0.85


def test_librdkafka_reads_everything_in_order(filled: Filled) -> None:
    found = large_log.read_librdkafka(filled.broker.address, filled.count)
    assert {place: each.ordered for place, each in found.items()} == filled.ordered


def test_kafka_python_reads_everything_in_order(filled: Filled) -> None:
    found = large_log.read_kafka_python(filled.broker.address, filled.count)
    assert {place: each.ordered for place, each in found.items()} == filled.ordered


def test_the_java_client_reads_everything_in_order(filled: Filled, java: Jvm) -> None:
    lines = java.run("ReadAll", filled.broker.address, *TOPICS).splitlines()
    rows = [line.split("\t") for line in lines]
    found = {(row[0], int(row[1])): (int(row[2]), row[3]) for row in rows}
    assert found == filled.ordered


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # sockets of Py4J
def test_spark_reads_everything(filled: Filled, spark: Any) -> None:
    rows = (
        spark.read.format("korvet")
        .option("redis", f"unix://{filled.broker.folder}/data/redis.sock")
        .option("subscribe", ",".join(TOPICS))
        .load()
        .selectExpr("topic", "partition", "crc32(value) AS crc")
        .groupBy("topic", "partition")
        .agg({"*": "count", "crc": "sum"})
        .collect()
    )
    found = {(row["topic"], row["partition"]): (row["count(1)"], row["sum(crc)"]) for row in rows}
    assert found == {place: each.unordered for place, each in filled.written.items()}
