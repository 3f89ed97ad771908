"""The Spark packages that a job needs beside Korvet: which of them, for which PySpark.

A runtime of Delta or Iceberg is made for one Spark; the newest has none for months.
"""

import os
import re
from collections.abc import Mapping

from korvet.pipeline.errors import MissingRuntime

RUNTIMES = {
    "delta": {
        # Not older: Delta before 4.3 cannot read its own checkpoints on Spark 4.1.2 and newer.
        "4.1": "io.delta:delta-spark_4.1_2.13:4.3.1",
        "4.2": "io.delta:delta-spark_4.2_2.13:4.4.0",
    },
    "iceberg": {"4.1": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0"},
}
AVRO = "org.apache.spark:spark-avro_2.13:4.1.1"
"""Serves Spark 4.1 to 4.3: it was not published for each of them."""
SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""In the environment of what spark-submit starts, whose Java runs already."""
_VERSIONS = re.compile(r"(?:[-_]\d+(?:\.\d+)*)+$")
_SPARKS_OWN = "org.apache.hadoop:*,org.apache.parquet:*,org.tukaani:*"
"""What these packages ask for, but every Spark brings along."""


def fetched(table_format: str, conf: Mapping[str, str], *, avro: bool) -> dict[str, str]:
    """The settings by which Spark fetches what --conf names and what else is needed. MissingRuntime
    where nothing is made for this PySpark and nothing was named in its place."""
    if "spark.jars" in conf or SUBMITTED in os.environ:
        return {}  # Named already; or Java runs, and fetches nothing more.
    if table_format not in RUNTIMES and not avro:
        return {}
    wanted = [each for each in conf.get("spark.jars.packages", "").split(",") if each]
    known = {_artifact(each) for each in wanted}
    if table_format in RUNTIMES and _artifact(RUNTIMES[table_format]["4.1"]) not in known:
        wanted.append(runtime(table_format))
    if avro and _artifact(AVRO) not in known:
        wanted.append(AVRO)
    return {
        "spark.jars.packages": ",".join(wanted),
        "spark.jars.excludes": conf.get("spark.jars.excludes", _SPARKS_OWN),
    }


def runtime(table_format: str) -> str:
    """The package of the format for this PySpark. MissingRuntime where there is none."""
    known = RUNTIMES[table_format]
    if _line() not in known:
        raise MissingRuntime(
            f"--format {table_format} needs a runtime made for its Spark, and none is known for "
            f"PySpark {_spark()}: take one of {', '.join(known)} (pip install 'korvet[lake]'), or "
            "name a package that fits with --conf spark.jars.packages=GROUP:NAME:VERSION."
        )
    return known[_line()]


def _spark() -> str:
    import pyspark

    return pyspark.__version__


def _line() -> str:
    """The PySpark that is installed, as "4.1"."""
    return ".".join(_spark().split(".")[:2])


def _artifact(package: str) -> str:
    """What a package is, whatever its version and whatever Spark and Scala it is for."""
    return _VERSIONS.sub("", package.split(":")[1])
