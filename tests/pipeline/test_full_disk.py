"""A disk that is full, or a quota: what a job leaves behind, and how the next one goes on.

Neither needs root here: the running JVM may not write a file of more than so many bytes, which
fails as a full disk does, in the middle of whatever the file is. Rows are larger than what is
written of them in the tables' own files, so each size stops a commit somewhere else.
"""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from korvet.pipeline.archive import ArchiveJob, Archiver
from korvet.pipeline.errors import PipelineError
from korvet.pipeline.open_table import open_table
from korvet.pipeline.spark_session import plain_error
from korvet.pipeline.table import ArchiveTable, TableCreation
from korvet.pipeline.verify import verify_archive
from korvet.spark.options import Connection
from korvet.wire.records import Record
from tests.pipeline.archive_readers import offsets_in
from tests.pipeline.conftest import location_for
from tests.spark.topic_log import Log

# Py4J leaves its sockets to the collector.
pytestmark = pytest.mark.filterwarnings("ignore")

LIMITS = (0, 200, 1000, 2000, 4000, 8000, 16_000)


@contextmanager
def no_file_above(size: int, process: int) -> Iterator[None]:
    """The process cannot write more than so many bytes into a file."""
    before = resource.prlimit(process, resource.RLIMIT_FSIZE)
    resource.prlimit(process, resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.prlimit(process, resource.RLIMIT_FSIZE, before)


def incompressible(count: int) -> list[Record]:
    return [(n, 1_700_000_000_000 + n, None, os.urandom(100), []) for n in range(count)]


def said(archiver: Archiver) -> str:
    """The sentence with which the archiver gives up; empty if it does not."""
    try:
        archiver.catch_up(lambda _: None)
    except Exception as error:
        found = plain_error(error)
        assert isinstance(found, PipelineError), error
        return str(found)
    return ""


def exact(table: ArchiveTable, path: Path, format: str) -> int:
    """How many rows others read: those that the state names, each once."""
    found = offsets_in(path, format)
    held = {
        (span.topic, span.partition, offset)
        for span in table.state().archived
        for offset in range(span.start, span.end)
    }
    assert len(found) == len(held) and set(found) == held
    return len(found)


@pytest.mark.parametrize("format", ["parquet", "delta", "iceberg"])
def test_whatever_cannot_be_written_nothing_is_half_committed_and_the_next_run_goes_on(
    spark: Any, log: Log, tmp_path: Path, format: str
) -> None:
    topic = log.create("orders", 2, "batch", "dense")
    log.append(topic, 0, incompressible(100))
    location = location_for(spark, tmp_path, format)
    path = Path(location.path)
    table = open_table(spark, location, TableCreation())
    archiver = Archiver(spark, table, ArchiveJob(Connection(log.url), ("orders",), trim_older_ms=0))
    assert not said(archiver)
    jvm = spark.sparkContext._gateway.proc.pid
    sentences = []
    for size in LIMITS:
        for number in (0, 1):
            log.append(topic, number, incompressible(200))
        before = exact(table, path, format)
        with no_file_above(size, jvm):
            sentences.append(said(archiver))
        after = exact(table, path, format)
        assert after == before if sentences[-1] else after > before
    assert all("file too large" in each for each in sentences[:-1])
    assert not said(archiver)
    assert exact(table, path, format) == 100 + 400 * len(LIMITS)
    assert verify_archive(spark, table, Connection(log.url), ["orders"]).equal
