"""Where a table is: a directory, or a name in one of Spark's catalogs."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from korvet.pipeline.errors import NoArchive, PipelineError
from korvet.spark.named import is_name

FORMATS = ("parquet", "delta", "iceberg")


class Place(msgspec.Struct, frozen=True):
    """A table's format and where it is. `path` is empty for a table known by name."""

    format: str
    path: str
    name: str

    def __str__(self) -> str:
        return self.path or self.name

    @property
    def is_path(self) -> bool:
        """Whether the table is a directory rather than a name."""
        return bool(self.path)

    @property
    def catalog(self) -> str:
        """The catalog made for the directory around an Iceberg table."""
        return "korvet_" + hashlib.sha256(str(Path(self.path).parent).encode()).hexdigest()[:12]

    @property
    def sql(self) -> str:
        """The table as SQL names it."""
        if not self.is_path:
            return ".".join(f"`{part}`" for part in self.name.split("."))
        if self.format == "delta":
            return f"delta.`{self.path}`"
        return f"{self.catalog}.`{Path(self.path).name}`"


def parse(text: str, format: str | None, conf: Mapping[str, str] | None = None) -> Place:
    """The place that the text names. A format that nobody gave is found out from what is there, or
    from the settings that --conf gives for the catalog of a table's name."""
    if format is not None and format not in FORMATS:
        raise PipelineError(f"--format must be one of {', '.join(FORMATS)}, not {format!r}.")
    if not text:
        raise PipelineError("Which table? Give a path, or a table's name.")
    if "://" in text and not text.startswith("file://"):
        return _remote(text, format)
    if is_name(text, format):
        return Place(format or _named(text, conf or {}), "", text)
    path = Path(text.removeprefix("file://")).absolute()
    return Place(format or _seen(path), str(path), "")


def _named(name: str, conf: Mapping[str, str]) -> str:
    """The format of a table's name, as its catalog's settings tell it."""
    first = name.partition(".")[0]
    if conf.get(f"spark.sql.catalog.{first}", "").startswith("org.apache.iceberg."):
        return "iceberg"
    if conf.get("spark.sql.catalogImplementation") == "hive":
        return "delta"
    raise NoArchive(
        f"There is no directory {name} here. If that is a table's name, give its --format and with "
        "--conf the settings of its catalog."
    )


def _remote(text: str, format: str | None) -> Place:
    if format == "delta":
        return Place("delta", text.rstrip("/"), "")
    raise PipelineError(
        f"{text}: an archive on an object store needs --format delta, or --format iceberg with a "
        "table of a catalog. Parquet commits by renaming, which such stores cannot do."
    )


def _seen(path: Path) -> str:
    """The format of what stands at the path."""
    if (path / "_delta_log").is_dir():
        return "delta"
    if (path / "metadata").is_dir():
        return "iceberg"
    return "parquet"
