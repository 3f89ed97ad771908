"""An archive as a Delta table.

Rules
- The `userMetadata` of our newest commit has the number and the name of the state file: Delta
  writes it atomically with the rows. Commits by others (OPTIMIZE, VACUUM) may be newer.
- The state file is written before the commit. The sums of the commit's rows are known only after
  it: a second file has them. A crash in between leaves a `pending` state; the next run settles it
  first, so nothing is trimmed without stored sums.
- Commits carry Delta's transaction id (`txnAppId`; `txnVersion` is our number). If two archivers
  use one number, Delta rejects or ignores one of them: read back which one.
- Delete the state files of all but the last KEPT_STATES commits.
"""

import os
import re
import uuid
import zlib
from collections.abc import Iterable
from contextlib import closing, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
from pyspark.errors import AnalysisException

from korvet.spark.pipeline.commit_metadata import (
    EMPTY,
    CommitMetadata,
    decode,
    pointer_to,
    state_file,
    with_rows,
)
from korvet.spark.pipeline.errors import ForeignTable, PipelineError
from korvet.spark.pipeline.table import ArchiveTable, CommitRecount, RowCount
from korvet.spark.tiered.archive_table import (
    PROPERTY,
    STATES,
    CommitPointer,
    decode_pointer,
)

_APP = "korvet-archive"
_SUMS = ".sums"
_RECENT = 20
KEPT_STATES = 2000
_CONFLICT = re.compile("DELTA_CONCURRENT|DELTA_METADATA_CHANGED")
_HISTORY = ("version", "userMetadata", "operationMetrics")


class DeltaTable(ArchiveTable):
    """A Delta table with our commits."""

    kind = "a Delta table"
    unfinished = re.compile(r"_delta_log(/\..*|/_\w+)?")
    """A log that has only hidden files and directories."""

    def _exists(self) -> bool:
        try:
            detail = self._detail()
        except AnalysisException:
            return False
        if detail["format"] != "delta":
            raise ForeignTable(f"{self._location} is not a Delta table.")
        if PROPERTY not in detail["properties"]:
            raise self._foreign_table()
        return True

    def _detail(self) -> Any:
        return self._spark.sql(f"DESCRIBE DETAIL {self._location.sql}").first()

    @cached_property
    def _log(self) -> Path:
        """Return the directory of the table's log if it is in a file system."""
        root = self._location.path or self._detail()["location"].removeprefix("file:")
        return Path(root, "_delta_log")

    def _make(self, values: str) -> None:
        self._check_catalog()
        if self._location.is_path:
            _clear_unfinished_log(Path(self._location.path, "_delta_log"))
        self._make_by_sql()

    def _check_catalog(self) -> None:
        """Raise PipelineError for a name in Spark's in-memory catalog, lost when Spark ends."""
        name = self._location.name
        ours = name.count(".") < 2 or name.startswith("spark_catalog.")
        kind = self._spark.conf.get("spark.sql.catalogImplementation", "in-memory")
        if name and ours and kind == "in-memory":
            raise PipelineError(
                f"Table name {name} would be lost after this job: Spark keeps its catalog in "
                "memory. Give a path, or use a Hive catalog: "
                "--conf spark.sql.catalogImplementation=hive."
            )

    def state(self) -> CommitMetadata:
        found = self._commits(_RECENT) or self._commits(None)
        return self._state(*found[0]) if found else EMPTY

    def _state(self, pointer: CommitPointer, rows: int) -> CommitMetadata:
        data = self._read(pointer.state)
        if data is None:
            raise PipelineError(
                f"{self._location}: the state file {STATES}/{pointer.state} of its newest commit "
                "is missing. Restore it, or archive into another table."
            )
        planned = decode(zlib.decompress(data))
        sums = self._read(pointer.state + _SUMS)
        if sums is None:
            return msgspec.structs.replace(planned, rows=rows)
        return msgspec.structs.replace(planned, pending=False, **msgspec.json.decode(sums))

    def _commits(self, max_commits: int | None) -> list[tuple[CommitPointer, int]]:
        """Return our commits and the rows that they added, newest first."""
        found = []
        oldest = 0
        for version, text, metrics in self._history(max_commits):
            oldest = version
            with suppress(msgspec.DecodeError):
                pointer = decode_pointer(text or "")
                found.append((pointer, int((metrics or {}).get("numOutputRows", 0))))
        if max_commits is None and oldest and not found:
            raise PipelineError(
                f"{self._location}: its history with our commits was cleaned up "
                "(delta.logRetentionDuration). Archive into another table."
            )
        return found

    def _history(
        self, count: int | None
    ) -> Iterable[tuple[int, str | None, dict[str, Any] | None]]:
        """Return version, user metadata and metrics of the table's commits, newest first."""
        log = self._log
        if log.is_dir():
            # Read the files directly: DESCRIBE HISTORY below runs a Spark job each time.
            versions = sorted(int(each.stem) for each in log.glob("[0-9]" * 20 + ".json"))
            return [_read_commit(log, version) for version in versions[::-1][:count]]
        limit = "" if count is None else f" LIMIT {count}"
        rows = self._spark.sql(f"DESCRIBE HISTORY {self._location.sql}{limit}")
        return [tuple(row) for row in rows.select(*_HISTORY).collect()]

    def append(
        self, frame: Any, before: CommitMetadata, planned: CommitMetadata, counted: RowCount
    ) -> CommitMetadata:
        sums = {"total_rows": before.total_rows, "checksum": before.checksum}
        pending = msgspec.structs.replace(planned, pending=True, **sums)
        pointer = pointer_to(pending)
        self._write(pointer.state, state_file(pending))
        self._commit(frame, pointer)
        for found, rows in self._commits(_RECENT):
            if found == pointer:
                done = self.settle(self._state(found, rows), lambda _: counted())
                self._delete_states(planned.number - KEPT_STATES)
                return done
        raise self._concurrent_commit()

    def settle(self, state: CommitMetadata, recounted: CommitRecount) -> CommitMetadata:
        if not state.pending:
            return state
        whole = with_rows(state, state, state.rows, *recounted(state))
        names = ("rows", "total_rows", "checksum")
        sums = {name: getattr(whole, name) for name in names}
        self._write(pointer_to(state).state + _SUMS, msgspec.json.encode(sums))
        return whole

    def _commit(self, frame: Any, pointer: CommitPointer) -> None:
        """Commit the rows with their pointer, unless there is a commit of this number."""
        writer = (
            frame.write.format("delta")
            .mode("append")
            .option("mergeSchema", "true")
            .option("userMetadata", msgspec.json.encode(pointer).decode())
            .option("txnAppId", _APP)
            .option("txnVersion", pointer.number)
        )
        try:
            if self._location.is_path:
                writer.save(self._location.path)
            else:
                writer.saveAsTable(self._location.name)
        except Exception as error:
            # A column that another archiver added meanwhile also conflicts.
            if "oncurrent" in type(error).__name__ or _CONFLICT.search(str(error)):
                raise self._concurrent_commit() from error
            raise

    def _states(self, name: str = "") -> tuple[Any, Any]:
        """Return Hadoop's file system and path of a state file, for a table in a store."""
        root = self._location.path or self._detail()["location"]
        path = self._spark._jvm.org.apache.hadoop.fs.Path(f"{root}/{STATES}/{name}")
        return path.getFileSystem(self._spark._jsc.hadoopConfiguration()), path

    def _read(self, name: str) -> bytes | None:
        """Return the content of a state file; None if there is none."""
        if self._log.is_dir():
            with suppress(FileNotFoundError):
                return (self._log.parent / STATES / name).read_bytes()
            return None
        system, path = self._states(name)
        if not system.exists(path):
            return None
        with closing(system.open(path)) as file:
            return bytes(file.readAllBytes())

    def _write(self, name: str, data: bytes) -> None:
        """Write a state file; it has its name only when it is whole."""
        fresh = f"{name}.{uuid.uuid4().hex}"
        if self._log.is_dir():
            try:
                _write_synced(self._log.parent / STATES, fresh, name, data)
            except OSError as error:
                why = error.strerror or error
                raise PipelineError(f"{self._location} cannot be written: {why}.") from error
            return
        system, path = self._states(fresh)
        with closing(system.create(path, True)) as file:
            file.write(data)
        # False if another archiver has written it.
        system.rename(path, self._states(name)[1])

    def _delete_states(self, number: int) -> None:
        """Delete the state files of a commit, and what a crash left of it."""
        names = f"{number:08d}-*"
        if self._log.is_dir():
            for each in (self._log.parent / STATES).glob(names):
                each.unlink(missing_ok=True)
            return
        system, pattern = self._states(names)
        for found in system.globStatus(pattern):
            system.delete(found.getPath(), False)

    def frame(self) -> Any:
        if self._location.is_path:
            return self._spark.read.format("delta").load(self._location.path)
        return self._spark.read.table(self._location.name)

    def compact(self, target_bytes: int) -> int:
        name = "spark.databricks.delta.optimize.maxFileSize"
        self._spark.conf.set(name, str(target_bytes))
        metrics = self._spark.sql(f"OPTIMIZE {self._location.sql}").first()["metrics"]
        return int(metrics["numFilesRemoved"]) - int(metrics["numFilesAdded"])


def _read_commit(log: Path, version: int) -> tuple[int, str | None, dict[str, Any] | None]:
    """Return what a version's log file says of its commit; None if it was cleaned up."""
    try:
        lines = (log / f"{version:020d}.json").read_bytes().splitlines()
    except FileNotFoundError:
        return version, None, None
    for line in lines:
        info = msgspec.json.decode(line).get("commitInfo")
        if info is not None:
            return version, info.get("userMetadata"), info.get("operationMetrics")
    return version, None, None


def _write_synced(folder: Path, fresh: str, name: str, data: bytes) -> None:
    """Write a file to the disk under a fresh name, then give it its name."""
    folder.mkdir(exist_ok=True)
    try:
        with open(folder / fresh, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(folder / fresh, folder / name)
    except OSError:
        (folder / fresh).unlink(missing_ok=True)
        raise


def _clear_unfinished_log(log: Path) -> None:
    """Delete the files of a log without a version: Delta cannot create a table there."""
    for each in [*sorted(log.rglob("*"), reverse=True), log]:
        if DeltaTable.unfinished.fullmatch(each.relative_to(log.parent).as_posix()):
            # Fails if another process has just created the table: the directory is not empty then.
            with suppress(OSError):
                each.rmdir() if each.is_dir() else each.unlink()
