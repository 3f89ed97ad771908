"""How Spark finds format `korvet` by itself: it imports each top-level module named `pyspark_*`.

The wheel ships this file as the top-level module `pyspark_korvet`. Where the source cannot work,
Spark finds one that says why: an error here would end its search, for the formats of others too,
and of `korvet` it would only say that there is no such format.
"""

from typing import Any

from pyspark.sql.datasource import DataSource

from korvet.spark.errors import UnsupportedSpark


def _refusing(reason: str) -> Any:
    """A format `korvet` that tells the reason to whoever asks for it."""

    class Refused(DataSource):
        def __init__(self, options: Any) -> None:
            raise UnsupportedSpark(reason)

        @classmethod
        def name(cls) -> str:
            return "korvet"

    return Refused


DefaultSource: Any
try:
    from korvet.spark.source import KorvetDataSource as DefaultSource
except UnsupportedSpark as error:
    DefaultSource = _refusing(str(error))
except ImportError as error:
    DefaultSource = _refusing(f"korvet.spark is not whole: pip install 'korvet[spark]' ({error})")

__all__ = ["DefaultSource"]
