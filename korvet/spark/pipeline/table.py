"""The interface of an archive table, independent of its format."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Self

from korvet.spark.pipeline.commit_metadata import CommitMetadata
from korvet.spark.pipeline.errors import ConcurrentCommit, ForeignTable, NoArchive, PipelineError
from korvet.spark.pipeline.row_hash import DDL
from korvet.spark.pipeline.spark_session import error_text
from korvet.spark.pipeline.table_location import TableLocation
from korvet.spark.tiered.archive_table import PROPERTY

RowCount = Callable[[], tuple[int, int]]
"""Returns rows written and the sum of their hashes, after the write."""
CommitRecount = Callable[[CommitMetadata], tuple[int, int]]
"""Returns the row count and sum of hashes of a commit, read from the table."""


class ArchiveTable(ABC):
    """An archive table. Opening one rejects tables of others."""

    kind: ClassVar[str]
    """The words for such a table in errors."""
    unfinished: ClassVar[re.Pattern[str]]
    """The files of a table whose creation was interrupted."""
    widens: ClassVar[bool] = False
    """Whether columns can get a wider type: int to long, float to double, decimals."""

    @classmethod
    def open(cls, spark: Any, location: TableLocation, values: str | None) -> Self:
        """Open the table at the location; create it if there is none and `values` is given.

        `values` is the mode of its typed columns. Raises NoArchive if there is no table,
        ForeignTable if others made what is there.
        """
        table = cls(spark, location)
        if table._exists():
            return table
        if location.is_path and not is_creatable(Path(location.path), cls.unfinished):
            raise ForeignTable(f"{location} is not empty and not {cls.kind}: nothing was written.")
        if values is None:
            raise no_archive_error(location)
        try:
            table._make(values)
        except PipelineError:
            raise
        except Exception as error:
            raise PipelineError(f"{location} cannot be created: {error_text(error)}") from error
        return table

    def __init__(self, spark: Any, location: TableLocation) -> None:
        self._spark = spark
        self._location = location

    @abstractmethod
    def _exists(self) -> bool:
        """Return whether there is a table; raise ForeignTable if others made it."""

    @abstractmethod
    def _make(self, values: str) -> None:
        """Create the table."""

    def _make_by_sql(self, properties: str = "") -> None:
        self._spark.sql(
            f"CREATE TABLE IF NOT EXISTS {self._location.sql} ({DDL}, date DATE) "
            f"USING {self._location.format} PARTITIONED BY (date) "
            f"TBLPROPERTIES ('{PROPERTY}' = '1'{properties})"
        )

    @abstractmethod
    def state(self) -> CommitMetadata:
        """Return the newest commit, or EMPTY."""

    @abstractmethod
    def append(
        self, frame: Any, before: CommitMetadata, planned: CommitMetadata, counted: RowCount
    ) -> CommitMetadata:
        """Commit the rows with their metadata atomically, or raise ConcurrentCommit.

        `planned` follows `before` without row counts; the returned commit has them.
        """

    def settle(self, state: CommitMetadata, recounted: CommitRecount) -> CommitMetadata:
        """Return the state after adding a pending commit's rows to its sums."""
        return state

    @abstractmethod
    def frame(self) -> Any:
        """Return the table's rows as of one commit."""

    @abstractmethod
    def compact(self, target_bytes: int) -> int:
        """Merge small files without readers noticing; return how many files fewer there are."""

    def _foreign_table(self) -> ForeignTable:
        return ForeignTable(f"{self._location} is {self.kind} that korvet pipeline did not create.")

    def _concurrent_commit(self) -> ConcurrentCommit:
        return ConcurrentCommit(f"Another process archives into {self._location} at the same time.")


def no_archive_error(location: TableLocation) -> NoArchive:
    """Build the error for reading a table that does not exist."""
    return NoArchive(f"There is no archive at {location}.")


def is_creatable(root: Path, unfinished: re.Pattern[str]) -> bool:
    """Return whether a table can be created at the path.

    The path must not exist, or have only files of an interrupted creation, by the pattern.
    """
    if not root.is_dir():
        return not root.exists()
    names = (each.relative_to(root).as_posix() for each in root.iterdir())
    if not all(map(unfinished.fullmatch, names)):
        return False
    return all(unfinished.fullmatch(each.relative_to(root).as_posix()) for each in root.rglob("*"))
