"""Register format `korvet`: Spark imports each top-level module named `pyspark_*`.

The wheel installs this file as the top-level module `pyspark_korvet`. If the source cannot work, it
registers a format that raises the reason: an import error here would also hide other formats.
"""

from typing import Any

from pyspark.sql.datasource import DataSource

from korvet.spark.errors import UnsupportedSpark


def _failing_source(reason: str) -> Any:
    """Return a format `korvet` that raises UnsupportedSpark with the reason."""

    class Failing(DataSource):
        def __init__(self, options: Any) -> None:
            raise UnsupportedSpark(reason)

        @classmethod
        def name(cls) -> str:
            return "korvet"

    return Failing


DefaultSource: Any
try:
    from korvet.spark.data_source import KorvetDataSource as DefaultSource
except UnsupportedSpark as error:
    DefaultSource = _failing_source(str(error))
except ImportError as error:
    DefaultSource = _failing_source(f"korvet.spark is incomplete: install korvet[spark] ({error})")

__all__ = ["DefaultSource"]
