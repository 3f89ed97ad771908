"""Spark sessions for tests: local, quiet, with format `korvet` where Spark looks for it."""

import gc
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import korvet

PROJECT = Path(korvet.__file__).parent.parent
ENTRY_POINTS = PROJECT / "korvet" / "spark" / "entry_points"
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
"""Options of a short-lived JVM: optimized compilation takes longer than it saves."""

SMALL = {
    # Compiling a query takes longer than running it on a few rows.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}


def environment() -> dict[str, str]:
    """Return the environment in which Spark's Python processes find korvet as if installed."""
    paths = [str(PROJECT), str(ENTRY_POINTS)]
    return {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(paths),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


@contextmanager
def session(master: str, **conf: str) -> Iterator[Any]:
    """Start a session and stop it at the end; `a__b` is setting `a.b`."""
    from pyspark.sql import SparkSession

    os.environ.update(environment())
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "ERROR",
        **{name.replace("__", "."): value for name, value in conf.items()},
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        builder = SparkSession.builder.master(master)
        for name, value in settings.items():
            builder = builder.config(name, value)
        running = builder.getOrCreate()
    try:
        yield running
    finally:
        running.stop()
        collect_sockets()


def collect_sockets() -> None:
    """Collect the sockets that Py4J leaves open, so that no later test gets a ResourceWarning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
