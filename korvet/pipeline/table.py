"""The interface of an archive table, independent of its format."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from korvet.pipeline.commit_metadata import CommitMetadata
from korvet.pipeline.errors import ConcurrentCommit, NoArchive
from korvet.pipeline.table_location import TableLocation

RowCount = Callable[[], tuple[int, int]]
"""Returns rows written and the sum of their hashes, after the write."""
CommitRecount = Callable[[CommitMetadata], tuple[int, int]]
"""Returns the row count and sum of hashes of a commit, read from the table."""


class ArchiveTable(ABC):
    """An archive table. Opening one rejects tables of others."""

    def __init__(self, spark: Any, location: TableLocation) -> None:
        self._spark = spark
        self._location = location

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

    def _concurrent_commit(self) -> ConcurrentCommit:
        return ConcurrentCommit(f"Another process archives into {self._location} at the same time.")


class TableCreation(msgspec.Struct, frozen=True):
    """Options for creating a table."""

    values: str = "bytes"


def no_archive_error(location: TableLocation) -> NoArchive:
    """Build the error for reading a table that does not exist."""
    return NoArchive(f"There is no archive at {location}.")


def is_creatable(root: Path, unmade: re.Pattern[str]) -> bool:
    """Return whether a table can be created at the path.

    The path must not exist, or have only files of an interrupted creation, by the pattern.
    """
    if not root.is_dir():
        return not root.exists()
    names = (each.relative_to(root).as_posix() for each in root.iterdir())
    if not all(map(unmade.fullmatch, names)):
        return False
    return all(unmade.fullmatch(each.relative_to(root).as_posix()) for each in root.rglob("*"))
