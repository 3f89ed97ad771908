"""Open the archive table at a location, loading only the libraries of its format."""

from typing import Any

from korvet.pipeline.errors import MissingRuntime
from korvet.pipeline.table import ArchiveTable, TableCreation
from korvet.pipeline.table_location import TableLocation


def open_table(
    spark: Any, location: TableLocation, creation: TableCreation | None = None
) -> ArchiveTable:
    """Open the table; create it if `creation` is given, else raise NoArchive or ForeignTable."""
    if location.format == "parquet":
        from korvet.pipeline.parquet_table import ParquetTable

        return ParquetTable.open(spark, location, creation)
    if location.format == "delta":
        from korvet.pipeline.delta_table import DeltaTable

        return DeltaTable.open(spark, location, creation)
    if location.format == "iceberg":
        from korvet.pipeline.iceberg_table import IcebergTable

        return IcebergTable.open(spark, location, creation)
    raise MissingRuntime(f"Unknown table format {location.format!r}.")
