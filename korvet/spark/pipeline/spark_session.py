"""Start the Spark session of a job, with format `korvet` and the table format's runtime."""

import os
import re
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from korvet.config.setting import StartError
from korvet.spark.pipeline.errors import MissingRuntime, PipelineError
from korvet.spark.pipeline.maven_packages import SUBMIT_VARIABLE, package_settings, runtime_package
from korvet.spark.pipeline.table_location import TableLocation
from korvet.store.errors import StoreError

_CLASSES: dict[str, str] = {
    "delta": "io.delta.sql.DeltaSparkSessionExtension",
    "iceberg": "org.apache.iceberg.spark.SparkCatalog",
}
_JAVA = "spark.executor.extraJavaOptions"
_AVRO_LIMITS = {
    "org.apache.avro.limits.string.maxLength": 128 << 20,
    "org.apache.avro.limits.bytes.maxLength": 128 << 20,
    "org.apache.avro.limits.collectionItems.maxLength": 16 << 20,
}
"""Spark's decoder allocates the length that a value states: one wrong byte would end Java."""
_ALWAYS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Rows arrive in order of time, so few days at once: no sort is needed to partition them.
    "spark.sql.maxConcurrentOutputFileWriters": "32",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
}


def open_session(
    location: TableLocation | None,
    *,
    app: str,
    master: str | None = None,
    conf: Mapping[str, str],
    avro: bool = False,
) -> Any:
    """Start a session for the table location; raise MissingRuntime if a package is missing."""
    from korvet.spark.data_source import KorvetDataSource

    # Workers must run the Python of the driver, not whatever `python3` is.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    submitted = submitted_settings()
    wanted = session_settings(location, master=master, conf=conf, submitted=submitted)
    if wanted["spark.master"].startswith("local"):
        # Otherwise Spark warns about a loopback address.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    wanted |= package_settings(location.format if location else "parquet", conf, avro=avro)
    if avro:
        limits = " ".join(f"-D{name}={limit}" for name, limit in _AVRO_LIMITS.items())
        wanted[_JAVA] = f"{limits} {wanted.get(_JAVA, submitted.get(_JAVA, ''))}".strip()
    builder = SparkSession.builder.appName(app)
    for name, value in wanted.items():
        builder = builder.config(name, value)
    try:
        spark = builder.getOrCreate()
    except Exception as error:
        packages = wanted.get("spark.jars.packages")
        # Java also exits if packages cannot be downloaded.
        if "JAVA_GATEWAY_EXITED" in str(error) and not (packages and _has_java()):
            raise PipelineError(
                "Spark did not start: it needs Java 17 or newer, on the PATH or by JAVA_HOME."
            ) from error
        if packages:
            raise MissingRuntime(
                f"Spark did not start with its packages {packages}: {error_text(error)} Check "
                "that Maven Central is reachable, or name jar files with --conf spark.jars=FILE."
            ) from error
        raise PipelineError(f"Spark did not start: {error_text(error)}") from error
    spark.sparkContext.setLogLevel(conf.get("korvet.log.level", "ERROR"))
    _check_runtime(spark, location)
    spark.dataSource.register(KorvetDataSource)
    return spark


def limit_avro_lengths(spark: Any) -> None:
    """Limit the lengths that the driver's decoder accepts; Avro reads the limits at first use."""
    for name, limit in _AVRO_LIMITS.items():
        spark._jvm.java.lang.System.setProperty(name, str(limit))


def submitted_settings() -> dict[str, str]:
    """Return the settings of spark-submit and spark-defaults.conf, or {} without spark-submit."""
    if SUBMIT_VARIABLE not in os.environ:
        return {}
    SparkContext._ensure_initialized()  # else only Python's own settings are returned
    return dict(SparkConf().getAll())


def session_settings(
    location: TableLocation | None,
    *,
    master: str | None,
    conf: Mapping[str, str],
    submitted: Mapping[str, str],
) -> dict[str, str]:
    """Return all settings of a session, including its master.

    Settings of spark-submit override our local defaults but not what a job requires; --conf and
    --master override everything.
    """
    default = os.environ.get("KORVET_SPARK_MASTER", "local[*]")
    master = master or conf.get("spark.master") or submitted.get("spark.master") or default
    # A local driver needs no address that others can reach.
    here = ("spark.driver.bindAddress", "spark.driver.host") if master.startswith("local") else ()
    ours = {**dict.fromkeys(here, "127.0.0.1"), **_local_defaults()}
    kept = {name: value for name, value in submitted.items() if name in ours}
    wanted = {**ours, **kept, **_ALWAYS, **_format_settings(location), **conf}
    return wanted | {"spark.master": master}


def _has_java() -> bool:
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=f"{home}/bin" if home else None) is not None


def _local_defaults() -> dict[str, str]:
    """Return defaults for a job on one machine."""
    return {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2)),
        "spark.driver.memory": "2g",
    }


def _format_settings(location: TableLocation | None) -> dict[str, str]:
    if location is None or location.format == "parquet":
        return {}
    if location.format == "delta":
        return {
            "spark.sql.extensions": _CLASSES["delta"],
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            # Delta's default of 50 tasks per read of its log is for far larger tables.
            "spark.databricks.delta.snapshotPartitions": str(max(2, os.cpu_count() or 2)),
        }
    extensions = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
    found = {"spark.sql.extensions": extensions}
    if location.is_path:
        # A path becomes a table of a Hadoop catalog whose warehouse is its parent directory.
        name = f"spark.sql.catalog.{location.catalog}"
        found[name] = _CLASSES["iceberg"]
        found[f"{name}.type"] = "hadoop"
        found[f"{name}.warehouse"] = str(Path(location.path).parent)
        found[f"{name}.cache-enabled"] = "false"
    return found


def _check_runtime(spark: Any, location: TableLocation | None) -> None:
    if location is None or location.format not in _CLASSES:
        return
    loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        loader.loadClass(_CLASSES[location.format])
    except Exception as error:
        package = runtime_package(location.format)
        raise MissingRuntime(
            f"--format {location.format} needs the Spark package {package}: start Spark with "
            f"--packages {package}."
        ) from error


def stop_session(spark: Any) -> None:
    """Stop the session; ignore that its Java process is gone."""
    with suppress(ConnectionError, Py4JError):
        spark.stop()


def error_text(error: BaseException) -> str:
    """Return the message of an error on one line, without Py4J's prefix."""
    # Some messages of Java begin with a line break.
    lines = (str(error).strip() or type(error).__name__).replace(": \n", ": ").splitlines()
    java = lines[1][2:] if len(lines) > 1 and lines[1].startswith(": ") else ""
    return java or lines[0]


_DISK_FULL = re.compile("No space left on device|Disk quota exceeded|File too large")
_CAUSE = re.compile(r"Caused by: (?:[\w.$]+: )?(.+)")
_OWN_ERROR = re.compile(r"korvet\.(?:spark|pipeline|store)\.[\w.]*?errors\.\w+: (.+)")


def plain_error(error: Exception) -> Exception:
    """Return the error as one sentence if it comes from our processes or from Spark."""
    # Py4J wraps errors of its sockets: a BrokenPipeError is one of our output.
    if isinstance(error, StartError | StoreError | BrokenPipeError):
        return error
    text = str(error)
    # Java's answers have a trace; a connection that broke during a call has none.
    asked = isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError)
    answered = asked and ("Trace:" in text or "does not exist" in text)
    if isinstance(error, ConnectionError | EOFError) or (asked and not answered):
        return PipelineError(
            "Spark's Java process ended during the job (killed, or out of memory?): "
            f"{error_text(error)}. All commits so far are valid; the next run continues after them."
        )
    if isinstance(error, ValueError | RuntimeError) and type(error).__module__.startswith("korvet"):
        return PipelineError(text)
    if found := _OWN_ERROR.findall(text):
        return PipelineError(found[-1])
    if not isinstance(error, PySparkException | Py4JJavaError) and not answered:
        return error
    if full := _DISK_FULL.search(text):
        return PipelineError(
            f"Writing failed: {full[0].lower()}. All commits so far are valid; the next run "
            "continues after them."
        )
    cause = _CAUSE.findall(text)
    return PipelineError(f"Spark failed: {cause[-1] if cause else error_text(error)}")
