"""The Spark session of a job: format `korvet` registered, and the table format's runtime in it."""

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from korvet.pipeline.errors import MissingRuntime, PipelineError
from korvet.pipeline.places import Place
from korvet.settings.setting import StartError
from korvet.store.errors import StoreError

PACKAGES = {
    # Not older: Delta before 4.3 cannot read its own checkpoints on Spark 4.1.2 and newer.
    "delta": "io.delta:delta-spark_4.1_2.13:4.3.1",
    "iceberg": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0",
}
_SPARKS_OWN = "org.apache.hadoop:*,org.apache.parquet:*,org.tukaani:*"
"""What these packages ask for, but every Spark brings along."""
AVRO = "org.apache.spark:spark-avro_2.13"
_AVRO_VERSIONS = {"4.1": "4.1.1"}
"""Of other Sparks their own version is taken. Of 4.1, not all versions were published."""
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
    master = master or conf.get("spark.master") or os.environ.get("KORVET_SPARK_MASTER", "local[*]")
    builder = SparkSession.builder.appName(app).master(master)
    wanted = {**_defaults(), **_ALWAYS, **_for_format(place), **conf}
    if master.startswith("local"):
        # Nobody else has to reach this driver; and Spark has no reason to warn of loopback.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        wanted = {"spark.driver.bindAddress": "127.0.0.1", **wanted}
        wanted = {"spark.driver.host": "127.0.0.1", **wanted}
    wanted |= _fetched(place, conf, avro=avro)
    for name, value in wanted.items():
        builder = builder.config(name, value)
    try:
        spark = builder.getOrCreate()
    except Exception as error:
        if place is not None and place.format in PACKAGES:
            raise MissingRuntime(
                f"Spark did not start with {PACKAGES[place.format]}, which --format {place.format} "
                f"needs (is a Maven repository or --conf spark.jars=FILE in reach?): "
                f"{_first_line(error)}"
            ) from error
        raise PipelineError(f"Spark did not start: {_first_line(error)}") from error
    spark.sparkContext.setLogLevel(conf.get("korvet.log.level", "ERROR"))
    _check_runtime(spark, place)
    spark.dataSource.register(KorvetDataSource)
    return spark


def _defaults() -> dict[str, str]:
    """What a job on one machine wants; --conf wins."""
    return {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2)),
        "spark.driver.memory": "2g",
    }


def _fetched(place: Place | None, conf: Mapping[str, str], *, avro: bool) -> dict[str, str]:
    """The packages that Spark fetches: what --conf names, and what else is needed."""
    import pyspark

    wanted = [] if place is None or place.format == "parquet" else [PACKAGES[place.format]]
    if avro:
        spark = pyspark.__version__
        wanted.append(f"{AVRO}:{_AVRO_VERSIONS.get(spark.rpartition('.')[0], spark)}")
    if not wanted or "spark.jars" in conf:
        return {}
    given = [each for each in conf.get("spark.jars.packages", "").split(",") if each]
    known = {_artifact(each) for each in given}
    found = {
        "spark.jars.packages": ",".join(
            (*given, *(each for each in wanted if _artifact(each) not in known))
        )
    }
    found["spark.jars.excludes"] = conf.get("spark.jars.excludes", _SPARKS_OWN)
    return found


def _artifact(package: str) -> str:
    """What a package is, whatever its version and whatever Spark and Scala it is for."""
    return package.split(":")[1].split("_")[0]


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
            f"--format {place.format} needs the Spark package {PACKAGES[place.format]}: start "
            f"Spark with --packages {PACKAGES[place.format]}."
        ) from error


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


_FULL = re.compile("No space left on device|Disk quota exceeded|File too large")
_CAUSE = re.compile(r"Caused by: (?:[\w.$]+: )?(.+)")
_OURS = re.compile(r"korvet\.(?:spark|pipeline|store)\.[\w.]*?errors\.\w+: (.+)")


def plain(error: Exception) -> Exception:
    """The error, or what one of our own processes or Spark said, in one sentence."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    if isinstance(error, StartError | StoreError):
        return error
    if isinstance(error, ValueError | RuntimeError) and type(error).__module__.startswith("korvet"):
        return PipelineError(str(error))
    text = str(error)
    if found := _OURS.findall(text):
        return PipelineError(found[-1])
    if not isinstance(error, PySparkException | Py4JJavaError):
        return error
    if full := _FULL.search(text):
        return PipelineError(
            f"Not all could be written: {full[0].lower()}. What has been committed stands; "
            "the next run goes on behind it."
        )
    cause = _CAUSE.findall(text)
    return PipelineError(f"Spark could not go on: {cause[-1] if cause else _first_line(error)}")
