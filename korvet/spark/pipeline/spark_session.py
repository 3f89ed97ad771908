"""Start the Spark session of a job, with format `korvet` and the packages that the job needs.

A runtime of Delta or Iceberg fits one line of Spark; it appears months after the newest Spark.
"""

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
from korvet.spark.pipeline.table_location import TableLocation
from korvet.store.errors import StoreError

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
