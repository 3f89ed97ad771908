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
- In a compaction, neighbouring small batches become one batch with the number and state of the
  last one and the spans of all.
"""

import ctypes
import fcntl
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from korvet.spark.pipeline.commit_metadata import EMPTY, CommitMetadata, decode, encode, with_rows
from korvet.spark.pipeline.errors import PipelineError
from korvet.spark.pipeline.row_hash import DDL
from korvet.spark.pipeline.table import ArchiveTable, RowCount
from korvet.spark.pipeline.table_location import TableLocation

COMMIT = "_commit.json"


def compact_directory(spark: Any, data: Path, staged: Path, target_bytes: int) -> int:
    """Build a compacted copy of `data` in `staged`; return how many files fewer, 0 if unchanged."""
    runs = _group_batches(sorted(data.glob("batch=*")), target_bytes)
    before = sum(len(_files(batch)) for run in runs for batch in run)
    if all(len(run) == 1 for run in runs):
        return 0
    staged.mkdir(parents=True)
    for run in runs:
        if len(run) == 1:
            shutil.copytree(run[0], staged / run[0].name, copy_function=_link)
        else:
            _merge_group(spark, data, run, staged / run[-1].name, target_bytes)
    return before - len(_files(staged))


def _group_batches(batches: Sequence[Path], target_bytes: int) -> list[list[Path]]:
    """Group neighbouring small batches, in order."""
    runs: list[list[Path]] = []
    last_small = False
    for batch in batches:
        files = _files(batch)
        small = not files or sum(f.stat().st_size for f in files) < len(files) * target_bytes // 2
        if small and last_small:
            runs[-1].append(batch)
        else:
            runs.append([batch])
        last_small = small
    return runs


def _merge_group(
    spark: Any, data: Path, run: Sequence[Path], into: Path, target_bytes: int
) -> None:
    commits = [decode((batch / COMMIT).read_bytes()) for batch in run]
    files = [file for batch in run for file in _files(batch)]
    if files:
        size = sum(file.stat().st_size for file in files)
        rows = spark.read.option("basePath", str(data)).option("mergeSchema", "true")
        frame = rows.parquet(*(str(batch) for batch in run if _files(batch))).drop("batch")
        count = max(1, -(-size // target_bytes))
        frame.coalesce(count).write.partitionBy("date").parquet(str(into))
        (into / "_SUCCESS").unlink(missing_ok=True)
    else:
        into.mkdir()
    whole = msgspec.structs.replace(
        commits[-1],
        spans=tuple(span for commit in commits for span in commit.spans),
        rows=sum(commit.rows for commit in commits),
    )
    (into / COMMIT).write_text(encode(whole))


def _files(directory: Path) -> list[Path]:
    return sorted(directory.rglob("*.parquet"))


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def swap_directories(one: Path, other: Path) -> None:
    """Swap the two directories; each path exists at all times."""
    library = ctypes.CDLL(None, use_errno=True)
    rename = getattr(library, "renameat2", None)
    if rename is None:
        raise PipelineError(
            "--compact of a Parquet archive needs Linux (renameat2); Delta and Iceberg do not."
        )
    failed = rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
    if failed:
        code = ctypes.get_errno()
        raise PipelineError(f"{other} cannot be swapped on this file system: {os.strerror(code)}.")


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

    def _make(self, values: str) -> None:
        written = self._marker.with_name(f"table.{uuid.uuid4().hex}")
        try:
            (self._own / "staging").mkdir(parents=True, exist_ok=True)
            self.data.mkdir(exist_ok=True)
            written.write_bytes(msgspec.json.encode({"korvet": 1, "values": values}))
            os.replace(written, self._marker)
        except OSError as error:
            raise _unwritable_error(self.root, error) from error

    def state(self) -> CommitMetadata:
        newest = max(self.data.glob("batch=*"), default=None)
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
                    swap_directories(staged, self.data)
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
