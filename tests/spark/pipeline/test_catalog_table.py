"""Check tiered reads of an archive that is a named table of Spark's catalog."""

import os
import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from korvet.spark.errors import InvalidOption
from korvet.spark.pipeline.archive import open_table
from korvet.spark.pipeline.delta_table import DeltaTable
from korvet.spark.pipeline.table import ArchiveTable
from korvet.spark.pipeline.table_location import TableLocation
from korvet.spark.tiered import catalog_table
from korvet.store.sync_store import SyncStore
from tests.spark.data_source_driver import read
from tests.spark.pipeline.conftest import archive
from tests.spark.topic_log import Log, plain

# Py4J closes its sockets only when they are garbage-collected.
pytestmark = pytest.mark.filterwarnings("ignore")

ICEBERG = "org.apache.iceberg.spark.SparkCatalog"
ROUNDS = int(os.environ.get("KORVET_TEST_ROUNDS", "1"))


@pytest.fixture
def lake(spark: Any, tmp_path: Path) -> Iterator[Any]:
    """Spark with an Iceberg catalog `lake`, and a database `sales` in its own catalog."""
    settings = {"": ICEBERG, ".type": "hadoop", ".warehouse": str(tmp_path / "warehouse")}
    for name, value in settings.items():
        spark.conf.set(f"spark.sql.catalog.lake{name}", value)
    spark.sql("CREATE DATABASE IF NOT EXISTS sales")
    yield spark
    for name in settings:
        spark.conf.unset(f"spark.sql.catalog.lake{name}")


def table_named(
    spark: Any, format: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> ArchiveTable:
    """Create an archive table of that name."""
    # Spark's own catalog exists as long as the session: long enough here.
    monkeypatch.setattr(DeltaTable, "_check_catalog", lambda self: None)
    return open_table(spark, TableLocation(format, "", name), "bytes")


def offsets(spark: Any, log: Log, archive: str, **options: str) -> list[tuple[int, int]]:
    """Return partition and offset of every record, from the table and from Redis."""
    frame = spark.read.format("korvet").options(
        redis=log.url, subscribe="orders", archive=archive, columns="partition,offset", **options
    )
    return sorted((row.partition, row.offset) for row in frame.load().collect())


class Busy(threading.Thread):
    """A topic with repeated appends, archivings and trims; `steps` receives each step before it
    starts."""

    def __init__(self, spark: Any, log: Log, table: ArchiveTable) -> None:
        super().__init__()
        self._spark, self._log, self._table = spark, log, table
        self._topic = log.create("orders", 2)
        self._appended = 0
        self.steps: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self.error: Exception | None = None
        self._append()

    def _append(self) -> None:
        for number in range(2):
            self._log.append(self._topic, number, plain(40))
        self._appended += 40

    def run(self) -> None:
        try:
            for _ in range(ROUNDS):
                self.steps.put(self._appended)
                archive(self._spark, self._log, self._table, trim_older_ms=0)
                self._append()
        except Exception as error:
            self.error = error
        self.steps.put(None)


@pytest.mark.spark
@pytest.mark.parametrize(("format", "name"), [("delta", "sales.Orders"), ("iceberg", "lake.db.o")])
def test_a_read_of_a_named_table_and_the_log_is_complete_while_an_archiver_runs(
    lake: Any, log: Log, monkeypatch: pytest.MonkeyPatch, format: str, name: str
) -> None:
    table = table_named(lake, format, name, monkeypatch)
    with SyncStore.connect(log.url) as store:
        busy = Busy(lake, Log(store, log.url), table)
        busy.start()
        while (least := busy.steps.get()) is not None:
            for _ in range(2):
                found = offsets(lake, log, name)
                each = len(found) // 2
                assert found == [(number, offset) for number in range(2) for offset in range(each)]
                assert each >= least
        busy.join()
    assert busy.error is None
    assert log.store.command("XLEN", "korvet:orders:0") == 40
    last = 40 * (ROUNDS + 1)
    assert offsets(lake, log, name) == [(number, n) for number in range(2) for n in range(last)]
    low, high = '{"orders": {"0": 5, "1": 30}}', '{"orders": {"0": 25, "1": 70}}'
    part = offsets(lake, log, name, startingOffsets=low, endingOffsets=high)
    assert part == [(0, n) for n in range(5, 25)] + [(1, n) for n in range(30, 70)]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("name", "format", "said"),
    [
        ("lake.db.nothing", "", "no Iceberg table 'lake.db.nothing'"),
        ("sales.nothing", "", "no Delta table 'sales.nothing'.*DESCRIBE DETAIL sales.nothing"),
        ("pond.db.orders", "", "no catalog 'pond': set spark.sql.catalog.pond"),
        ("sales.orders", "iceberg", "catalog 'spark_catalog' .*Set the table's path"),
    ],
)
def test_a_name_that_is_not_a_table_is_rejected_with_the_reason(
    lake: Any, log: Log, name: str, format: str, said: str
) -> None:
    log.create("orders", records=3)
    given = {"archiveFormat": format} if format else {}
    with pytest.raises(Exception, match=said):
        offsets(lake, log, name, **given)


def test_a_task_without_catalog_settings_reports_it(log: Log) -> None:
    log.create("orders", records=3)
    with pytest.raises(InvalidOption, match=r"RDD.*Set the table's path"):
        read(log.url, subscribe="orders", archive="lake.db.orders")


@pytest.mark.parametrize(
    ("given", "uri"),
    [
        ({"uri": "jdbc:sqlite:/lake/catalog.db"}, "sqlite:////lake/catalog.db"),
        (
            {"uri": "jdbc:postgresql://db/c", "jdbc.user": "me", "jdbc.password": "a@b"},
            "postgresql+psycopg2://me:a%40b@db/c",
        ),
    ],
)
def test_a_jdbc_catalog_gets_pyicebergs_properties(given: dict[str, str], uri: str) -> None:
    assert catalog_table._pyiceberg_properties("jdbc", given)["uri"] == uri
