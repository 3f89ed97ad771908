"""Full disks and quotas: what a failed job leaves, and how the next run continues.

Without root: the running JVM is limited to a file size, so a write fails like on a full disk, in
the middle of any file. Rows are larger than the tables' metadata files, so each limit stops a
commit at another point.
"""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from korvet.spark.pipeline.archive import open_table
from korvet.spark.pipeline.errors import PipelineError
from korvet.spark.pipeline.spark_session import plain_error
from korvet.spark.pipeline.table import ArchiveTable
from korvet.wire.records import Record
from tests.spark.pipeline.archive_readers import offsets_in
from tests.spark.pipeline.conftest import archive, location_for, verify
from tests.spark.topic_log import Log

# Py4J closes its sockets only when they are garbage-collected.
pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]

LIMITS = (0, 200, 1000, 2000, 4000, 8000, 16_000)


@contextmanager
def no_file_above(size: int, process: int) -> Iterator[None]:
    """Limit the size of files that the process can write."""
    before = resource.prlimit(process, resource.RLIMIT_FSIZE)
    resource.prlimit(process, resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.prlimit(process, resource.RLIMIT_FSIZE, before)


def incompressible(count: int) -> list[Record]:
    return [(n, 1_700_000_000_000 + n, None, os.urandom(100), []) for n in range(count)]


def said(*archived: Any) -> str:
    """Archive and return the error message, or an empty string."""
    try:
        archive(*archived, trim_older_ms=0)
    except Exception as error:
        found = plain_error(error)
        assert isinstance(found, PipelineError), error
        return str(found)
    return ""


def exact(table: ArchiveTable, path: Path, format: str) -> int:
    """Return the rows that other readers see; each row of the state must be there once."""
    found = offsets_in(path, format)
    held = {
        (span.topic, span.partition, offset)
        for span in table.state().archived
        for offset in range(span.start, span.end)
    }
    assert len(found) == len(held) and set(found) == held
    return len(found)


@pytest.mark.parametrize("format", ["parquet", "delta", "iceberg"])
def test_a_failed_write_leaves_no_incomplete_commit_and_the_next_run_continues(
    spark: Any, log: Log, tmp_path: Path, format: str
) -> None:
    topic = log.create("orders", 2, "batch", "dense")
    log.append(topic, 0, incompressible(100))
    location = location_for(spark, tmp_path, format)
    path = Path(location.path)
    table = open_table(spark, location, "bytes")
    assert not said(spark, log, table)
    jvm = spark.sparkContext._gateway.proc.pid
    sentences = []
    for size in LIMITS:
        for number in (0, 1):
            log.append(topic, number, incompressible(200))
        before = exact(table, path, format)
        with no_file_above(size, jvm):
            sentences.append(said(spark, log, table))
        after = exact(table, path, format)
        assert after == before if sentences[-1] else after > before
    assert all("file too large" in each for each in sentences[:-1])
    assert not said(spark, log, table)
    assert exact(table, path, format) == 100 + 400 * len(LIMITS)
    assert verify(spark, log, table).equal
