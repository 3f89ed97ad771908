"""Check the imports of the source in a new process of Spark: they delay its first row."""

import json
import subprocess
import sys

import pytest

from korvet.spark.metadata import MetadataClient
from korvet.spark.options import Connection
from tests.spark.spark_sessions import environment
from tests.spark.topic_log import Log

SLOW = {"pandas", "aiokafka", "redis", "redis.asyncio", "crc32c", "pyarrow.compute", "ssl"}

_PROGRAM = """
import json, sys
import numpy, pyarrow, pyspark.worker, pyspark.sql.worker.plan_data_source_read
url = sys.argv[1]
{before}
known = set(sys.modules)
{step}
print(json.dumps(sorted(set(sys.modules) - known)))
"""
_MAKE = """
from korvet.spark.data_source import KorvetDataSource
KorvetDataSource({"redis": url, "subscribe": "s"}).schema()
"""
_READ = """
from tests.spark.data_source_driver import source, schema_of
made = source(url, subscribe="s")
reader = made.reader(schema_of(made))
[piece] = reader.partitions()
assert sum(batch.num_rows for batch in reader.read(piece)) == 500
"""
_WRITE = """
import pyarrow as pa
from korvet.spark.option_parser import parse_write
from korvet.spark.write.writers import write_task
options = parse_write({"redis": url, "topic": "s"}, streaming=False)
assert write_task(options, "job", 0, 0, [rows]).records == 500
"""
_ROWS = """
import pyarrow
def text(size):
    ends = numpy.arange(0, 501 * size, size, dtype="i4")
    buffers = [None, pyarrow.py_buffer(ends), pyarrow.py_buffer(b"7" * 500 * size)]
    return pyarrow.Array.from_buffers(pyarrow.string(), 500, buffers)
rows = pyarrow.RecordBatch.from_arrays([text(3), text(9)], ["key", "value"])
"""


def imported(step: str, url: str, before: str = "") -> set[str]:
    program = _PROGRAM.replace("{before}", before).replace("{step}", step)
    ran = subprocess.run(
        [sys.executable, "-c", program, url],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return SLOW & set(json.loads(ran.stdout))


def test_making_the_source_imports_no_redis(log: Log) -> None:
    assert imported(_MAKE, log.url) == set()


@pytest.mark.parametrize(
    ("form", "needed"),
    [("batch", {"redis", "redis.asyncio", "ssl"}),
     ("record", {"redis", "redis.asyncio", "ssl", "pyarrow.compute"})],
)  # fmt: skip
def test_reading_imports_neither_pandas_nor_a_kafka_client(
    log: Log, form: str, needed: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log.create("s", 1, form, "dense", records=500)
    # The first process at a server begins the leader epoch in all logs, once.
    monkeypatch.setattr("korvet.log.accept_server._accepted", set())
    with MetadataClient(Connection(redis=log.url, namespace="korvet")) as first:
        first.store.command("PING")
    assert imported(_READ, log.url) <= needed


def test_writing_single_records_imports_neither_pandas_nor_a_kafka_client(log: Log) -> None:
    log.create("s", 1, "record", "dense")
    assert not imported(_WRITE, log.url, _ROWS) & {"pandas", "aiokafka", "crc32c"}


@pytest.mark.parametrize(
    ("lacks", "reason"),
    [
        ("del pyspark.sql.datasource.DataSourceStreamArrowWriter", "needs PySpark 4.1 or newer"),
        ("sys.modules['msgspec'] = None", "is incomplete: install korvet[spark]"),
        ("pass", ""),
    ],
)
def test_a_spark_that_cannot_run_the_source_finds_one_that_raises_the_reason(
    lacks: str, reason: str
) -> None:
    """An import error would end Spark's search for data sources, including those of others."""
    program = f"""
import sys, pyspark.sql.datasource
{lacks}
import pyspark_korvet
from pyspark.cloudpickle import dumps, loads
found = loads(dumps(pyspark_korvet.DefaultSource))
assert issubclass(found, pyspark.sql.datasource.DataSource) and found.name() == "korvet"
found({{}})
"""
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if reason:
        last = ran.stderr.splitlines()[-1]
        assert last.startswith("korvet.spark.errors.UnsupportedSpark: ") and reason in last
    else:
        assert ran.returncode == 0, ran.stderr
