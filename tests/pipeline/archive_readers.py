"""Archives read by whoever has nothing to do with us: DuckDB, delta-rs, PyIceberg."""

from pathlib import Path

import duckdb
from deltalake import DeltaTable
from pyiceberg.table import StaticTable

KEY = ("topic", "partition", "offset")


def offsets_in(path: Path, format: str) -> list[tuple[str, int, int]]:
    """Topic, partition and offset of every row."""
    if format == "parquet":
        return duckdb.sql(
            f"SELECT topic, partition, \"offset\" FROM read_parquet('{path}/data/*/*/*.parquet')"
        ).fetchall()
    if format == "delta":
        found = DeltaTable(str(path)).to_pyarrow_dataset().to_table(columns=list(KEY))
    else:
        # Where the hint beside them is old or gone, Iceberg takes the newest, too.
        versions = (path / "metadata").glob("v*.metadata.json")
        newest = max(versions, key=lambda file: int(file.name.split(".")[0][1:]))
        table = StaticTable.from_metadata(str(newest))
        found = table.scan(selected_fields=KEY).to_arrow()
    return list(zip(*(found.column(name).to_pylist() for name in KEY), strict=True))
