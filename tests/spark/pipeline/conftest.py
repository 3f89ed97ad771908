"""Fixtures for the tests of the jobs: one Spark session with all table formats."""

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from korvet.spark.options import Connection
from korvet.spark.pipeline import spark_session
from korvet.spark.pipeline.archive import ArchivedCommit, ArchiveJob, Archiver, Watch, open_table
from korvet.spark.pipeline.table import ArchiveTable
from korvet.spark.pipeline.table_location import TableLocation, parse_location
from korvet.spark.pipeline.verify import Verdict, verify_archive
from tests.spark.spark_sessions import QUICK, SMALL, collect_sockets
from tests.spark.topic_log import Log


@pytest.fixture(scope="package")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A Spark session for all tests of the jobs, with the runtimes of Delta and Iceberg."""
    from pyspark.sql import SparkSession

    from korvet.spark.data_source import KorvetDataSource

    _end_spark()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]")
    settings = spark_session._local_defaults() | spark_session._ALWAYS
    given = {"spark.jars.packages": spark_session.runtime_package("iceberg")}
    settings |= spark_session.package_settings("delta", given, avro=True)
    settings["spark.sql.shuffle.partitions"] = "2"
    settings["spark.driver.extraJavaOptions"] = QUICK
    settings["spark.driver.host"] = "127.0.0.1"
    settings["spark.sql.warehouse.dir"] = str(tmp_path_factory.mktemp("warehouse"))
    both = ",".join(
        (
            "io.delta.sql.DeltaSparkSessionExtension",
            "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        )
    )
    settings |= spark_session._format_settings(TableLocation("delta", "/lake", "")) | {
        "spark.sql.extensions": both
    }
    settings |= SMALL
    for name, value in settings.items():
        builder = builder.config(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        running = builder.getOrCreate()
    running.sparkContext.setLogLevel("OFF")
    running.dataSource.register(KorvetDataSource)
    yield running
    running.stop()
    _end_spark()


def location_for(spark: Any, directory: Path, format: str) -> TableLocation:
    """Return a table location in the directory, whose catalog the session has."""
    location = parse_location(str(directory / f"table_{format}"), format)
    for name, value in spark_session._format_settings(location).items():
        if name.startswith(f"spark.sql.catalog.{location.catalog}"):
            spark.conf.set(name, value)
    return location


def new_table(
    spark: Any, directory: Path, format: str = "parquet", values: str = "bytes"
) -> ArchiveTable:
    """Create a table in the directory."""
    return open_table(spark, location_for(spark, directory, format), values)


def ignore_commit(done: ArchivedCommit) -> None:
    """Ignore the commit."""


def archive(spark: Any, log: Log, table: Any, watch: Watch = ignore_commit, **options: Any) -> int:
    """Archive topic `orders` and return how many records were added."""
    job = ArchiveJob(Connection(log.url), ("orders",), **options)
    return Archiver(spark, table, job).catch_up(watch)


def verify(spark: Any, log: Log, table: ArchiveTable, topic: str = "orders") -> Verdict:
    """Compare the topic with the table."""
    return verify_archive(spark, table, Connection(log.url), [topic])


def _end_spark() -> None:
    """Stop the JVM: packages can only be added when it starts."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        active.stop()
    gateway: Any = SparkContext._gateway
    if gateway is None:
        return
    process: subprocess.Popen[bytes] = gateway.proc
    gateway.shutdown()
    if process.stdin is not None:
        process.stdin.close()
    process.wait(30)
    SparkContext._gateway = None
    SparkContext._jvm = None
    collect_sockets()
