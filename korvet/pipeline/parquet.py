"""An archive of plain Parquet files that whoever reads it sees whole.

    PATH/_korvet/table.json                      this is an archive of ours
    PATH/_korvet/lock                            held by whoever commits or compacts
    PATH/_korvet/staging/<id>/                   what is being written; nobody reads here
    PATH/data/batch=00000001/_commit.json        what the batch adds, and the state behind it
    PATH/data/batch=00000001/date=2026-11-21/part-*.parquet

Rules
- A batch is written in staging and becomes visible by one rename of its directory. Files of a
  batch are never seen without its commit, nor a commit without all of its files.
- A rename onto a batch that exists fails: two archivers cannot commit one number.
- Compaction builds a whole new `data` (large files as hard links) and exchanges it with the old
  one in one step.
- What is renamed has been flushed to the disk before: the log forgets what a commit says is here.
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

from korvet.pipeline import exchange
from korvet.pipeline.errors import ForeignTable, Overtaken, PipelineError
from korvet.pipeline.places import Place
from korvet.pipeline.ranges import NOTHING, Commit, decode, encode, grown
from korvet.pipeline.rows import DDL
from korvet.pipeline.table import Counted, Making, Recounted, fresh, missing

COMMIT = "_commit.json"
LEFTOVER_S = 86_400
_UNMADE = re.compile(r"_korvet(/staging|/table\.[0-9a-f]{32})?|data")
"""What there is of a table before its table.json."""


class ParquetTable:
    """See the module."""

    def __init__(self, spark: Any, place: Place) -> None:
        self._spark = spark
        self.root = Path(place.path)
        self.data = self.root / "data"
        self._own = self.root / "_korvet"

    @classmethod
    def open(cls, spark: Any, place: Place, making: Making | None) -> Self:
        """The table at the place; made there if nothing is, and `making` says how."""
        table = cls(spark, place)
        marker = table._own / "table.json"
        if marker.exists():
            return table
        if making is None and not table.root.exists():
            raise missing(place)
        if not fresh(table.root, _UNMADE):
            raise ForeignTable(
                f"{table.root} is not empty and no archive of Korvet: nothing was written there."
            )
        if making is None:
            raise missing(place)
        try:
            table._make(marker, making)
        except OSError as error:
            raise _unwritable(table.root, error) from error
        return table

    def _make(self, marker: Path, making: Making) -> None:
        (self._own / "staging").mkdir(parents=True, exist_ok=True)
        self.data.mkdir(exist_ok=True)
        written = marker.with_name(f"table.{uuid.uuid4().hex}")
        written.write_bytes(msgspec.json.encode({"korvet": 1, "values": making.values}))
        os.replace(written, marker)

    def state(self) -> Commit:
        newest = max(self._batches(), default=None)
        return NOTHING if newest is None else decode((newest / COMMIT).read_bytes())

    def commits(self) -> list[Commit]:
        """The commits that stand beside the batches, oldest first."""
        return [decode((batch / COMMIT).read_bytes()) for batch in sorted(self._batches())]

    def append(self, frame: Any, before: Commit, planned: Commit, counted: Counted) -> Commit:
        self._sweep()
        staged = self._own / "staging" / uuid.uuid4().hex
        try:
            frame.write.partitionBy("date").parquet(str(staged))
            rows = _rows_in(staged)
            return self.publish(staged, before, grown(before, planned, rows, *counted()))
        except OSError as error:
            raise _unwritable(self.root, error) from error
        finally:
            shutil.rmtree(staged, ignore_errors=True)

    def staging(self) -> Path:
        """A fresh directory that nobody reads."""
        staged = self._own / "staging" / uuid.uuid4().hex
        staged.mkdir(parents=True)
        return staged

    def publish(self, staged: Path, before: Commit, commit: Commit) -> Commit:
        """The staged directory is the next batch; Overtaken if another one is."""
        (staged / COMMIT).write_text(encode(commit))
        (staged / "_SUCCESS").unlink(missing_ok=True)
        _flush(staged)
        with self._locked():
            if self.state().number != before.number:
                raise Overtaken(f"Somebody else archives into {self.root}.")
            try:
                os.rename(staged, self.data / f"batch={commit.number:08d}")
            except OSError as error:
                raise Overtaken(f"Somebody else archives into {self.root}: {error}.") from error
            _flush_directory(self.data)
        return commit

    def frame(self) -> Any:
        if not any(self.data.glob("batch=*/date=*/*.parquet")):
            return self._spark.createDataFrame([], DDL + ", date DATE")
        return self._spark.read.option("mergeSchema", "true").parquet(str(self.data)).drop("batch")

    def settle(self, state: Commit, recounted: Recounted) -> Commit:
        return state

    def compact(self, target_bytes: int) -> int:
        from korvet.pipeline.compaction import merged

        staged = self._own / "staging" / uuid.uuid4().hex
        with self._locked():
            try:
                gone = merged(self._spark, self.data, staged, target_bytes)
                if gone:
                    _flush(staged)
                    exchange.swap(staged, self.data)
                    _flush_directory(self.root)
                return gone
            finally:
                shutil.rmtree(staged, ignore_errors=True)

    def _sweep(self) -> None:
        """What a crash left in staging a day ago is gone."""
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


def _rows_in(directory: Path) -> int:
    """How many rows the files have, by their footers."""
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(file).num_rows for file in directory.rglob("*.parquet"))


def _flush(directory: Path) -> None:
    """Everything below the directory is on the disk."""
    for root, _, names in os.walk(directory):
        for name in names:
            with open(Path(root, name), "rb") as file:
                os.fsync(file.fileno())
        _flush_directory(Path(root))


def _flush_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _unwritable(root: Path, error: OSError) -> PipelineError:
    return PipelineError(f"{root} cannot be written: {error.strerror or error}.")
