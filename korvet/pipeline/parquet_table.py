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
from typing import Any

import msgspec

from korvet.pipeline import atomic_swap
from korvet.pipeline.commit_metadata import EMPTY, CommitMetadata, decode, encode, with_rows
from korvet.pipeline.errors import PipelineError
from korvet.pipeline.parquet_compaction import COMMIT, compact_directory
from korvet.pipeline.row_hash import DDL
from korvet.pipeline.table import ArchiveTable, RowCount, TableCreation
from korvet.pipeline.table_location import TableLocation

LEFTOVER_S = 86_400


class ParquetTable(ArchiveTable):
    """A directory of Parquet files with our commits."""

    kind = "an archive"
    unfinished = re.compile(r"_korvet(/staging|/table\.[0-9a-f]{32})?|data")
    """What exists before table.json."""

    def __init__(self, spark: Any, location: TableLocation) -> None:
        super().__init__(spark, location)
        self.root = Path(location.path)
        self.data = self.root / "data"
        self._own = self.root / "_korvet"
        self._marker = self._own / "table.json"

    def _exists(self) -> bool:
        return self._marker.exists()

    def _make(self, creation: TableCreation) -> None:
        written = self._marker.with_name(f"table.{uuid.uuid4().hex}")
        try:
            (self._own / "staging").mkdir(parents=True, exist_ok=True)
            self.data.mkdir(exist_ok=True)
            written.write_bytes(msgspec.json.encode({"korvet": 1, "values": creation.values}))
            os.replace(written, self._marker)
        except OSError as error:
            raise _unwritable_error(self.root, error) from error

    def state(self) -> CommitMetadata:
        newest = max(self._batches(), default=None)
        return EMPTY if newest is None else decode((newest / COMMIT).read_bytes())

    def append(
        self, frame: Any, before: CommitMetadata, planned: CommitMetadata, counted: RowCount
    ) -> CommitMetadata:
        import pyarrow.parquet as pq

        self._sweep()
        staged = self._new_staging()
        try:
            frame.write.partitionBy("date").parquet(str(staged))
            rows = sum(pq.read_metadata(file).num_rows for file in staged.rglob("*.parquet"))
            return self.publish(staged, before, with_rows(before, planned, rows, *counted()))
        except OSError as error:
            raise _unwritable_error(self.root, error) from error
        finally:
            shutil.rmtree(staged, ignore_errors=True)

    def staging(self) -> Path:
        """Create an empty staging directory."""
        staged = self._new_staging()
        staged.mkdir(parents=True)
        return staged

    def _new_staging(self) -> Path:
        return self._own / "staging" / uuid.uuid4().hex

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

    def frame(self) -> Any:
        if not any(self.data.glob("batch=*/date=*/*.parquet")):
            return self._spark.createDataFrame([], DDL + ", date DATE")
        return self._spark.read.option("mergeSchema", "true").parquet(str(self.data)).drop("batch")

    def compact(self, target_bytes: int) -> int:
        staged = self._new_staging()
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
