"""Where a table is: a directory, or a name in one of Spark's catalogs."""

import hashlib
from pathlib import Path

import msgspec

from korvet.pipeline.errors import PipelineError

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


def parse(text: str, format: str | None) -> Place:
    """The place that the text names; a format that nobody gave is found out from what is there."""
    if format is not None and format not in FORMATS:
        raise PipelineError(f"--format must be one of {', '.join(FORMATS)}, not {format!r}.")
    if not text:
        raise PipelineError("Which table? Give a path, or a table's name.")
    if "://" in text and not text.startswith("file://"):
        return _remote(text, format)
    is_path = "/" in text or text.startswith(".") or format in (None, "parquet")
    if not is_path:
        return Place(str(format), "", text)
    path = Path(text.removeprefix("file://")).absolute()
    return Place(format or _seen(path), str(path), "")


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
