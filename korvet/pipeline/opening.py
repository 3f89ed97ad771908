"""The table of a place: whichever format it has; only that one's libraries are loaded."""

from typing import Any

from korvet.pipeline.errors import MissingRuntime
from korvet.pipeline.places import Place
from korvet.pipeline.table import Making, Table


def open_table(spark: Any, place: Place, making: Making | None = None) -> Table:
    """The table at the place, made if `making` is given; NoArchive or ForeignTable else."""
    if place.format == "parquet":
        from korvet.pipeline.parquet import ParquetTable

        return ParquetTable.open(spark, place, making)
    if place.format == "delta":
        from korvet.pipeline.delta import DeltaTable

        return DeltaTable.open(spark, place, making)
    if place.format == "iceberg":
        from korvet.pipeline.iceberg import IcebergTable

        return IcebergTable.open(spark, place, making)
    raise MissingRuntime(f"There is no format {place.format!r}.")
