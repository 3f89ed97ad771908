"""The Spark session of a job: format `korvet` registered, and the table format's runtime in it."""

import os
import re
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from korvet.config.setting import StartError
from korvet.pipeline.errors import MissingRuntime, PipelineError
from korvet.pipeline.packages import SUBMITTED, fetched, runtime
from korvet.pipeline.places import Place
from korvet.store.errors import StoreError

_CLASSES = {
    "delta": "io.delta.sql.DeltaSparkSessionExtension",
    "iceberg": "org.apache.iceberg.spark.SparkCatalog",
}
_ALWAYS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Rows come in order of time: few days at once, so no sort is needed to part them by day.
    "spark.sql.maxConcurrentOutputFileWriters": "32",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
}


def open_session(
    place: Place | None,
    *,
    app: str,
    master: str | None = None,
    conf: Mapping[str, str],
    avro: bool = False,
) -> Any:
    """A session fit for the place. MissingRuntime names the package that is not there."""
    from pyspark.sql import SparkSession

    from korvet.spark.source import KorvetDataSource

    # Workers run what the driver runs, not whatever `python3` is.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    wanted = wanted_settings(place, master=master, conf=conf, told=submitted())
    if wanted["spark.master"].startswith("local"):
        # Spark has no reason to warn of loopback.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    wanted |= fetched(place.format if place else "parquet", conf, avro=avro)
    builder = SparkSession.builder.appName(app)
    for name, value in wanted.items():
        builder = builder.config(name, value)
    try:
        spark = builder.getOrCreate()
    except Exception as error:
        packages = wanted.get("spark.jars.packages")
        # Packages that cannot be fetched end Java, too.
        if "JAVA_GATEWAY_EXITED" in str(error) and not (packages and _has_java()):
            raise PipelineError(
                "Spark did not start: it needs Java 17 or newer, on the PATH or by JAVA_HOME."
            ) from error
        if packages:
            raise MissingRuntime(
                f"Spark did not start with {packages}, which this job needs "
                f"(is a Maven repository or --conf spark.jars=FILE in reach?): {said(error)}"
            ) from error
        raise PipelineError(f"Spark did not start: {said(error)}") from error
    spark.sparkContext.setLogLevel(conf.get("korvet.log.level", "ERROR"))
    _check_runtime(spark, place)
    spark.dataSource.register(KorvetDataSource)
    return spark


def submitted() -> dict[str, str]:
    """What spark-submit was told, and its spark-defaults.conf; nothing if it has not started this
    process."""
    if SUBMITTED not in os.environ:
        return {}
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()  # else Python's own settings are all there are
    return dict(SparkConf().getAll())


def wanted_settings(
    place: Place | None, *, master: str | None, conf: Mapping[str, str], told: Mapping[str, str]
) -> dict[str, str]:
    """All settings of a session, its master among them. What spark-submit was `told` wins over
    what suits one machine, and not over what a job is built on; --conf and --master win."""
    default = os.environ.get("KORVET_SPARK_MASTER", "local[*]")
    master = master or conf.get("spark.master") or told.get("spark.master") or default
    # Nobody else has to reach a local driver.
    here = ("spark.driver.bindAddress", "spark.driver.host") if master.startswith("local") else ()
    ours = {**dict.fromkeys(here, "127.0.0.1"), **_defaults()}
    kept = {name: value for name, value in told.items() if name in ours}
    wanted = {**ours, **kept, **_ALWAYS, **_for_format(place), **conf}
    return wanted | {"spark.master": master}


def _has_java() -> bool:
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=f"{home}/bin" if home else None) is not None


def _defaults() -> dict[str, str]:
    """What a job on one machine wants; --conf wins."""
    return {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2)),
        "spark.driver.memory": "2g",
    }


def _for_format(place: Place | None) -> dict[str, str]:
    if place is None or place.format == "parquet":
        return {}
    found: dict[str, str] = {}
    if place.format == "delta":
        found["spark.sql.extensions"] = "io.delta.sql.DeltaSparkSessionExtension"
        found["spark.sql.catalog.spark_catalog"] = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        # Each commit reads the table's log in so many tasks; Delta's 50 are for far larger tables.
        found["spark.databricks.delta.snapshotPartitions"] = str(max(2, os.cpu_count() or 2))
        return found
    found["spark.sql.extensions"] = (
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
    )
    if place.is_path:
        # A path is a table of a catalog whose warehouse is the directory around it.
        name = f"spark.sql.catalog.{place.catalog}"
        found[name] = "org.apache.iceberg.spark.SparkCatalog"
        found[f"{name}.type"] = "hadoop"
        found[f"{name}.warehouse"] = str(Path(place.path).parent)
        found[f"{name}.cache-enabled"] = "false"
    return found


def _check_runtime(spark: Any, place: Place | None) -> None:
    if place is None or place.format not in _CLASSES:
        return
    loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        loader.loadClass(_CLASSES[place.format])
    except Exception as error:
        raise MissingRuntime(
            f"--format {place.format} needs the Spark package {runtime(place.format)}: start "
            f"Spark with --packages {runtime(place.format)}."
        ) from error


def stop(spark: Any) -> None:
    """The session is stopped; its Java may have gone before."""
    from py4j.protocol import Py4JError

    with suppress(ConnectionError, Py4JError):
        spark.stop()


def said(error: BaseException) -> str:
    """What an error says, on one line. Py4J's says where it was called; Java's own is behind it."""
    lines = (str(error).strip() or type(error).__name__).splitlines()
    java = lines[1][2:] if len(lines) > 1 and lines[1].startswith(": ") else ""
    return java or lines[0]


_FULL = re.compile("No space left on device|Disk quota exceeded|File too large")
_CAUSE = re.compile(r"Caused by: (?:[\w.$]+: )?(.+)")
_OURS = re.compile(r"korvet\.(?:spark|pipeline|store)\.[\w.]*?errors\.\w+: (.+)")


def plain(error: Exception) -> Exception:
    """The error, or what one of our own processes or Spark said, in one sentence."""
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors import PySparkException

    # Java's pipes are sockets of Py4J's, which has an error of its own: this one is our output's.
    if isinstance(error, StartError | StoreError | BrokenPipeError):
        return error
    text = str(error)
    # What Java answered has a trace; a connection that broke within a call has none.
    asked = isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError)
    answered = asked and ("Trace:" in text or "does not exist" in text)
    if isinstance(error, ConnectionError | EOFError) or (asked and not answered):
        return PipelineError(
            "Spark's Java is gone in the middle of the job (killed, or out of memory?): "
            f"{said(error)}. What has been committed stands; the next run goes on behind it."
        )
    if isinstance(error, ValueError | RuntimeError) and type(error).__module__.startswith("korvet"):
        return PipelineError(text)
    if found := _OURS.findall(text):
        return PipelineError(found[-1])
    if not isinstance(error, PySparkException | Py4JJavaError) and not answered:
        return error
    if full := _FULL.search(text):
        return PipelineError(
            f"Not all could be written: {full[0].lower()}. What has been committed stands; "
            "the next run goes on behind it."
        )
    cause = _CAUSE.findall(text)
    return PipelineError(f"Spark could not go on: {cause[-1] if cause else said(error)}")
