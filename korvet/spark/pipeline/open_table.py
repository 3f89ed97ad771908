"""Open the archive table at a location."""

from typing import Any

from korvet.spark.pipeline.delta_table import DeltaTable
from korvet.spark.pipeline.iceberg_table import IcebergTable
from korvet.spark.pipeline.parquet_table import ParquetTable
from korvet.spark.pipeline.table import ArchiveTable, TableCreation
from korvet.spark.pipeline.table_location import TableLocation

_FORMATS: dict[str, type[ArchiveTable]] = {
    "parquet": ParquetTable,
    "delta": DeltaTable,
    "iceberg": IcebergTable,
}


def open_table(
    spark: Any, location: TableLocation, creation: TableCreation | None = None
) -> ArchiveTable:
    """Open the table; create it if `creation` is given, else raise NoArchive or ForeignTable."""
    return _FORMATS[location.format].open(spark, location, creation)
