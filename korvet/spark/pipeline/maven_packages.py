"""Select the Spark packages that a job needs, for the installed PySpark.

A runtime of Delta or Iceberg fits one line of Spark; it appears months after the newest Spark.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from korvet.spark.pipeline.errors import MissingRuntime

RUNTIMES = {
    "delta": {
        # Delta before 4.3 cannot read its own checkpoints on Spark 4.1.2 and newer.
        "4.1": "io.delta:delta-spark_4.1_2.13:4.3.1",
        "4.2": "io.delta:delta-spark_4.2_2.13:4.4.0",
    },
    "iceberg": {"4.1": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0"},
}
AVRO = "org.apache.spark:spark-avro_2.13:4.1.1"
"""Fits Spark 4.1 to 4.3: it was not published for each line."""
SUBMIT_VARIABLE = "PYSPARK_GATEWAY_PORT"
"""Set by spark-submit: Java is already running and downloads no more packages."""
_VERSIONS = re.compile(r"(?:[-_]\d+(?:\.\d+)*)+$")
_SPARKS_OWN = "org.apache.hadoop:*,org.apache.parquet:*,org.tukaani:*"
"""Dependencies of these packages that every Spark has."""
_IVY_SETTINGS = Path(__file__).with_name("ivysettings.xml")


def package_settings(table_format: str, conf: Mapping[str, str], *, avro: bool) -> dict[str, str]:
    """Return the settings by which Spark downloads the packages of --conf and of the job.

    Raises MissingRuntime if there is no runtime for this PySpark and --conf names none.
    """
    if "spark.jars" in conf or SUBMIT_VARIABLE in os.environ:
        return {}  # named by file, or too late for downloads
    if table_format not in RUNTIMES and not avro:
        return {}
    wanted = [each for each in conf.get("spark.jars.packages", "").split(",") if each]
    known = {_artifact_name(each) for each in wanted}
    if table_format in RUNTIMES and _artifact_name(RUNTIMES[table_format]["4.1"]) not in known:
        wanted.append(runtime_package(table_format))
    if avro and _artifact_name(AVRO) not in known:
        wanted.append(AVRO)
    found = {
        "spark.jars.packages": ",".join(wanted),
        "spark.jars.excludes": conf.get("spark.jars.excludes", _SPARKS_OWN),
    }
    if "spark.jars.ivySettings" not in conf:
        # A cache of our own: Spark's remembers that a package was found in ~/.m2.
        found["spark.jars.ivySettings"] = str(_IVY_SETTINGS)
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        found["spark.jars.ivy"] = conf.get("spark.jars.ivy", str(Path(cache, "korvet", "ivy")))
    return found


def runtime_package(table_format: str) -> str:
    """Return the runtime of the format for this PySpark, or raise MissingRuntime."""
    import pyspark

    known = RUNTIMES[table_format]
    line = ".".join(pyspark.__version__.split(".")[:2])
    if line not in known:
        raise MissingRuntime(
            f"--format {table_format} needs a runtime for its line of Spark, and none is known for "
            f"PySpark {pyspark.__version__}: take one of {', '.join(known)} (install "
            "korvet[lake]), or name a package that fits with --conf "
            "spark.jars.packages=GROUP:NAME:VERSION."
        )
    return known[line]


def _artifact_name(package: str) -> str:
    """Return a package's name without the versions of itself, Spark and Scala."""
    return _VERSIONS.sub("", package.split(":")[1])
