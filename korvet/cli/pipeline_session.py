"""The Spark session of a pipeline command."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from korvet.cli import options as o


def need_spark() -> None:
    """Raise StartError if PySpark, NumPy or PyArrow is not installed."""
    from importlib.util import find_spec

    from korvet.config.broker_config import StartError

    if not all(map(find_spec, ("pyspark", "numpy", "pyarrow"))):
        raise StartError("This needs PySpark: install korvet[spark].")


@contextmanager
def spark_session(
    app_name: str,
    table: str | None,
    format: str | None,
    target: o.Target,
    master: str | None,
    conf: list[str] | None,
    *,
    topics: list[str],
    there: bool = False,
    avro: bool = False,
) -> Iterator[tuple[Any, Any, Any]]:
    """Yield a session, the table's location and the connection, and stop the session afterwards.

    Unknown topics, and a table that should be `there` and is not, are reported before Spark starts.
    """
    import sys

    from korvet.cli import redis_target
    from korvet.spark.options import Connection
    from korvet.spark.pipeline.spark_session import (
        open_session,
        plain_error,
        stop_session,
        submitted_settings,
    )
    from korvet.spark.pipeline.table_location import parse_location

    # An archive draws its own progress bar; other jobs have Spark's.
    bars = sys.stderr.isatty() and app_name != "archive"
    given = {"spark.ui.showConsoleProgress": str(bars).lower()}
    given |= o.assignments("--conf", conf)
    location = (
        None if table is None else parse_location(table, format, {**submitted_settings(), **given})
    )
    with redis_target.url(target) as url:
        connection = Connection(url, target.namespace)
        _check_exist(connection, topics, location if there else None)
        spark = open_session(
            location, app=f"korvet {app_name}", master=master, conf=given, avro=avro
        )
        try:
            yield spark, location, connection
        except Exception as error:
            raise plain_error(error) from error
        finally:
            stop_session(spark)


def _check_exist(connection: Any, topics: list[str], location: Any) -> None:
    """Raise StartError if a topic or the table does not exist: Spark needs seconds to find out."""
    from pathlib import Path

    from korvet.config.broker_config import StartError
    from korvet.spark.errors import UnknownTopic
    from korvet.spark.metadata import MetadataClient
    from korvet.spark.pipeline.table import no_archive_error

    try:
        with MetadataClient(connection) as metadata:
            for name in topics:
                metadata.topic(name)
    except UnknownTopic as error:
        raise StartError(str(error)) from None
    # Delta's paths depend on Spark's settings (fs.defaultFS); other paths are on this machine.
    local = location is not None and location.is_path and location.format != "delta"
    if local and not Path(location.path).exists():
        raise no_archive_error(location)
