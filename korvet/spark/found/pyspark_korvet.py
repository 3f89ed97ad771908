"""How Spark finds format `korvet` by itself: it imports each top-level module named `pyspark_*`.

The wheel ships this file as the top-level module `pyspark_korvet`.
"""

from korvet.spark.source import KorvetDataSource as DefaultSource

__all__ = ["DefaultSource"]
