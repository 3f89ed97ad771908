"""Read archives with other libraries: DuckDB, delta-rs, PyIceberg."""

from pathlib import Path

import duckdb
from deltalake import DeltaTable
from pyiceberg.table import StaticTable

KEY = ("topic", "partition", "offset")


def offsets_in(path: Path, format: str) -> list[tuple[str, int, int]]:
    """Return topic, partition and offset of every row."""
    if format == "parquet":
        return duckdb.sql(
            f"SELECT topic, partition, \"offset\" FROM read_parquet('{path}/data/*/*/*.parquet')"
        ).fetchall()
    if format == "delta":
        found = DeltaTable(str(path)).to_pyarrow_dataset().to_table(columns=list(KEY))
    else:
        # Iceberg also takes the newest version if version-hint.text is stale or missing.
        versions = (path / "metadata").glob("v*.metadata.json")
        newest = max(versions, key=lambda file: int(file.name.split(".")[0][1:]))
        table = StaticTable.from_metadata(str(newest))
        found = table.scan(selected_fields=KEY).to_arrow()
    return list(zip(*(found.column(name).to_pylist() for name in KEY), strict=True))
