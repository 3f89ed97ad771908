"""The location of an archive table: a directory, or a name in one of Spark's catalogs."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from korvet.spark.pipeline.errors import NoArchive, PipelineError
from korvet.spark.tiered.archive_table import detect_format
from korvet.spark.tiered.catalog_table import is_table_name

FORMATS = ("parquet", "delta", "iceberg")


class TableLocation(msgspec.Struct, frozen=True):
    """A table's format and its location. `path` is empty for a table known by name."""

    format: str
    path: str
    name: str

    def __str__(self) -> str:
        return self.path or self.name

    @property
    def is_path(self) -> bool:
        """Return whether the table is a directory."""
        return bool(self.path)

    @property
    def catalog(self) -> str:
        """Return the name of the catalog for the parent directory of an Iceberg table."""
        return "korvet_" + hashlib.sha256(str(Path(self.path).parent).encode()).hexdigest()[:12]

    @property
    def sql(self) -> str:
        """Return the table's name in SQL."""
        if not self.is_path:
            return ".".join(f"`{part}`" for part in self.name.split("."))
        if self.format == "delta":
            return f"delta.`{self.path}`"
        return f"{self.catalog}.`{Path(self.path).name}`"


def parse_location(
    text: str, format: str | None, conf: Mapping[str, str] | None = None
) -> TableLocation:
    """Parse a path or table name.

    Without a format, detect it from the files at the path or from the catalog's --conf settings.
    """
    if format is not None and format not in FORMATS:
        raise PipelineError(f"--format must be one of {', '.join(FORMATS)}, not {format!r}.")
    if not text:
        raise PipelineError("No table: give a path or a table name.")
    if "://" in text and not text.startswith("file://"):
        return _check_remote(text, format)
    if is_table_name(text, format):
        return TableLocation(format or _format_of_name(text, conf or {}), "", text)
    path = Path(text.removeprefix("file://")).absolute()
    return TableLocation(format or detect_format(path), str(path), "")


def _format_of_name(name: str, conf: Mapping[str, str]) -> str:
    """Return the format of a named table by the settings of its catalog."""
    first = name.partition(".")[0]
    if conf.get(f"spark.sql.catalog.{first}", "").startswith("org.apache.iceberg."):
        return "iceberg"
    if conf.get("spark.sql.catalogImplementation") == "hive":
        return "delta"
    raise NoArchive(
        f"There is no directory {name}. If it is a table name, give its --format and the settings "
        "of its catalog with --conf."
    )


def _check_remote(text: str, format: str | None) -> TableLocation:
    if format == "delta":
        return TableLocation("delta", text.rstrip("/"), "")
    raise PipelineError(
        f"{text}: an archive on an object store needs --format delta, or --format iceberg with a "
        "table of a catalog. Parquet commits by renaming, which object stores cannot do."
    )
