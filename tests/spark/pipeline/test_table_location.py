"""Check the parsing of table locations."""

from pathlib import Path

import pytest

from korvet.spark.pipeline.errors import NoArchive
from korvet.spark.pipeline.table_location import TableLocation, parse_location
from korvet.spark.tiered.catalog_table import is_table_name

ICEBERG = {"spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog"}
HIVE = {"spark.sql.catalogImplementation": "hive"}


def test_the_catalogs_settings_give_the_format_of_a_named_table() -> None:
    assert parse_location("lake.db.orders", None, ICEBERG) == TableLocation(
        "iceberg", "", "lake.db.orders"
    )
    assert parse_location("orders_lake", None, HIVE) == TableLocation("delta", "", "orders_lake")
    assert parse_location("lake.db.orders", "delta", ICEBERG) == TableLocation(
        "delta", "", "lake.db.orders"
    )


def test_a_name_that_is_a_directory_here_is_that_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "orders" / "_delta_log").mkdir(parents=True)
    assert parse_location("orders", None, ICEBERG | HIVE) == TableLocation(
        "delta", str(tmp_path / "orders"), ""
    )
    assert parse_location("new", "parquet") == TableLocation("parquet", str(tmp_path / "new"), "")
    # A format with table names makes it a name; "./orders" is the directory.
    assert parse_location("orders", "delta") == TableLocation("delta", "", "orders")
    assert parse_location("./orders", "delta") == TableLocation(
        "delta", str(tmp_path / "orders"), ""
    )
    for text in ("orders", "./orders", "new"):
        for format in (None, "delta", "iceberg", "parquet"):
            if text != "new" or format:
                assert is_table_name(text, format) is not parse_location(text, format, HIVE).is_path


def test_a_name_without_directory_or_catalog_needs_a_format() -> None:
    with pytest.raises(NoArchive, match=r"no directory lake\.db\.orders\..*--format and"):
        parse_location("lake.db.orders", None, {})
