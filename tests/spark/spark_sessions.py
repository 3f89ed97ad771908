"""Spark sessions for tests: local, quiet, and with format `korvet` where Spark looks for it."""

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
"""Options of the JVM of tests: one that lives for seconds earns nothing by compiling twice."""


def environment() -> dict[str, str]:
    """What Spark's Python processes need to find us as if the wheel were installed."""
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
    """A running session, stopped at the end; `a__b` stands for `a.b`."""
    from pyspark.sql import SparkSession

    os.environ.update(environment())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        builder = (
            SparkSession.builder.master(master)
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.log.level", "ERROR")
        )
        for name, value in conf.items():
            builder = builder.config(name.replace("__", "."), value)
        running = builder.getOrCreate()
    try:
        yield running
    finally:
        running.stop()
