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
    "delta": "io.delta:delta-spark_4.1_2.13:4.1.0",
    "iceberg": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0",
}
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
    place: Place | None, *, app: str, master: str | None = None, conf: Mapping[str, str]
) -> Any:
    """A session fit for the place. MissingRuntime names the package that is not there."""
    from pyspark.sql import SparkSession

    from korvet.spark.source import KorvetDataSource

    # Workers run what the driver runs, not whatever `python3` is.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app)
    if master is not None or "spark.master" not in conf:
        builder = builder.master(master or os.environ.get("KORVET_SPARK_MASTER", "local[*]"))
    for name, value in {**_defaults(), **_ALWAYS, **_for_format(place, conf), **conf}.items():
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
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }


def _for_format(place: Place | None, conf: Mapping[str, str]) -> dict[str, str]:
    if place is None or place.format == "parquet":
        return {}
    found: dict[str, str] = {}
    if "spark.jars" not in conf:
        found["spark.jars.packages"] = PACKAGES[place.format]
    if place.format == "delta":
        found["spark.sql.extensions"] = "io.delta.sql.DeltaSparkSessionExtension"
        found["spark.sql.catalog.spark_catalog"] = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
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


_OURS = re.compile(r"korvet\.(?:spark|pipeline|store)\.[\w.]*?errors\.\w+: (.+)")


def plain(error: Exception) -> Exception:
    """The error, or what one of our own processes said in Spark's wrapping."""
    if isinstance(error, StartError | StoreError):
        return error
    if isinstance(error, ValueError | RuntimeError) and type(error).__module__.startswith("korvet"):
        return PipelineError(str(error))
    found = _OURS.findall(str(error))
    return PipelineError(found[-1]) if found else error
