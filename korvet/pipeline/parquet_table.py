"""An archive of plain Parquet files, with atomic commits.

    PATH/_korvet/table.json                      marks an archive of korvet pipeline
    PATH/_korvet/lock                            locked during a commit or compaction
    PATH/_korvet/staging/<id>/                   files being written; never read
    PATH/data/batch=00000001/_commit.json        the commit: what it adds, the state after it
    PATH/data/batch=00000001/date=2026-11-21/part-*.parquet

Rules
- A batch is written in staging and becomes visible by one rename of its directory: its files are
  never visible without the commit, nor the commit without all files.
- Renaming onto an existing batch fails: two archivers cannot commit the same number.
- Compaction builds a complete new `data` directory (large files as hard links) and swaps it
  atomically for the old one.
- Flush files to disk before the rename: the log is trimmed once a commit exists.
"""

import fcntl
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import msgspec

from korvet.pipeline import atomic_swap
from korvet.pipeline.commit_metadata import EMPTY, CommitMetadata, decode, encode, with_rows
from korvet.pipeline.errors import ConcurrentCommit, ForeignTable, PipelineError
from korvet.pipeline.row_hash import DDL
from korvet.pipeline.table import (
    ArchiveTable,
    RowCount,
    TableCreation,
    is_creatable,
    no_archive_error,
)
from korvet.pipeline.table_location import TableLocation

COMMIT = "_commit.json"
LEFTOVER_S = 86_400
_UNMADE = re.compile(r"_korvet(/staging|/table\.[0-9a-f]{32})?|data")
"""Files of a table before its table.json exists."""


class ParquetTable(ArchiveTable):
    """A directory of Parquet files with our commits."""

    def __init__(self, spark: Any, location: TableLocation) -> None:
        super().__init__(spark, location)
        self.root = Path(location.path)
        self.data = self.root / "data"
        self._own = self.root / "_korvet"

    @classmethod
    def open(cls, spark: Any, location: TableLocation, creation: TableCreation | None) -> Self:
        """Open the table at the location; create it if there is none and `creation` is given."""
        table = cls(spark, location)
        marker = table._own / "table.json"
        if marker.exists():
            return table
        if creation is None and not table.root.exists():
            raise no_archive_error(location)
        if not is_creatable(table.root, _UNMADE):
            raise ForeignTable(
                f"{table.root} is not empty and not an archive: nothing was written there."
            )
        if creation is None:
            raise no_archive_error(location)
        try:
            table._make(marker, creation)
        except OSError as error:
            raise _unwritable_error(table.root, error) from error
        return table

    def _make(self, marker: Path, creation: TableCreation) -> None:
        (self._own / "staging").mkdir(parents=True, exist_ok=True)
        self.data.mkdir(exist_ok=True)
        written = marker.with_name(f"table.{uuid.uuid4().hex}")
        written.write_bytes(msgspec.json.encode({"korvet": 1, "values": creation.values}))
        os.replace(written, marker)

    def state(self) -> CommitMetadata:
        newest = max(self._batches(), default=None)
        return EMPTY if newest is None else decode((newest / COMMIT).read_bytes())

    def commits(self) -> list[CommitMetadata]:
        """Return the commits of all batches, oldest first."""
        return [decode((batch / COMMIT).read_bytes()) for batch in sorted(self._batches())]

    def append(
        self, frame: Any, before: CommitMetadata, planned: CommitMetadata, counted: RowCount
    ) -> CommitMetadata:
        self._sweep()
        staged = self._own / "staging" / uuid.uuid4().hex
        try:
            frame.write.partitionBy("date").parquet(str(staged))
            rows = _count_rows(staged)
            return self.publish(staged, before, with_rows(before, planned, rows, *counted()))
        except OSError as error:
            raise _unwritable_error(self.root, error) from error
        finally:
            shutil.rmtree(staged, ignore_errors=True)

    def staging(self) -> Path:
        """Create an empty staging directory."""
        staged = self._own / "staging" / uuid.uuid4().hex
        staged.mkdir(parents=True)
        return staged

    def publish(
        self, staged: Path, before: CommitMetadata, commit: CommitMetadata
    ) -> CommitMetadata:
        """Make the staged directory the next batch, or raise ConcurrentCommit."""
        (staged / COMMIT).write_text(encode(commit))
        (staged / "_SUCCESS").unlink(missing_ok=True)
        _fsync_tree(staged)
        with self._locked():
            if self.state().number != before.number:
                raise self._concurrent_commit()
            try:
                os.rename(staged, self.data / f"batch={commit.number:08d}")
            except OSError as error:
                raise self._concurrent_commit() from error
            _fsync_directory(self.data)
        return commit

    def _concurrent_commit(self) -> ConcurrentCommit:
        return ConcurrentCommit(f"Another process archives into {self.root} at the same time.")

    def frame(self) -> Any:
        if not any(self.data.glob("batch=*/date=*/*.parquet")):
            return self._spark.createDataFrame([], DDL + ", date DATE")
        return self._spark.read.option("mergeSchema", "true").parquet(str(self.data)).drop("batch")

    def compact(self, target_bytes: int) -> int:
        from korvet.pipeline.parquet_compaction import compact_directory

        staged = self._own / "staging" / uuid.uuid4().hex
        with self._locked():
            try:
                gone = compact_directory(self._spark, self.data, staged, target_bytes)
                if gone:
                    _fsync_tree(staged)
                    atomic_swap.swap_directories(staged, self.data)
                    _fsync_directory(self.root)
                return gone
            finally:
                shutil.rmtree(staged, ignore_errors=True)

    def _sweep(self) -> None:
        """Delete what a crash left in staging more than LEFTOVER_S ago."""
        oldest = time.time() - LEFTOVER_S
        for left in (self._own / "staging").iterdir():
            if left.stat().st_mtime < oldest:
                shutil.rmtree(left, ignore_errors=True)

    def _batches(self) -> Iterator[Path]:
        try:
            yield from (each for each in self.data.iterdir() if each.name.startswith("batch="))
        except FileNotFoundError:
            return

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with open(self._own / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _count_rows(directory: Path) -> int:
    """Return the number of rows in the files, from their footers."""
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(file).num_rows for file in directory.rglob("*.parquet"))


def _fsync_tree(directory: Path) -> None:
    """Flush all files and directories below the directory to disk."""
    for root, _, names in os.walk(directory):
        for name in names:
            with open(Path(root, name), "rb") as file:
                os.fsync(file.fileno())
        _fsync_directory(Path(root))


def _fsync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _unwritable_error(root: Path, error: OSError) -> PipelineError:
    return PipelineError(f"{root} cannot be written: {error.strerror or error}.")
