"""An archive as a Delta table.

Rules
- The state is the `userMetadata` of our newest commit: Delta writes it atomically with the rows.
  Commits by others (OPTIMIZE, VACUUM) may be newer.
- The checksum of the rows is known only after their commit: a second, empty commit with the same
  number adds it. A crash in between leaves a `pending` commit; the next run settles it first, so
  nothing is trimmed without a stored checksum.
- Commits carry Delta's transaction id (`txnAppId`; `txnVersion` is our number). If two archivers
  use one number, Delta rejects or ignores one of them: read back which one.
"""

import re
from collections.abc import Iterable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
from pyspark.errors import AnalysisException

from korvet.pipeline.commit_metadata import EMPTY, CommitMetadata, decode, encode, with_rows
from korvet.pipeline.errors import ConcurrentCommit, ForeignTable, PipelineError
from korvet.pipeline.table import ArchiveTable, CommitRecount, RowCount, TableCreation
from korvet.spark.tiered.archive_table import PROPERTY

_APP = "korvet-archive"
_SUMS = "korvet-archive-sums"
_RECENT = 20
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

    def _make(self, creation: TableCreation) -> None:
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
        return found[0] if found else EMPTY

    def _commits(self, most: int | None) -> list[CommitMetadata]:
        """Return our commits, newest first."""
        found = []
        oldest = 0
        for version, text, metrics in self._history(most):
            oldest = version
            try:
                commit = decode(text or "")
            except msgspec.DecodeError:
                continue
            if commit.pending:
                rows_added = int((metrics or {}).get("numOutputRows", 0))
                commit = msgspec.structs.replace(commit, rows=rows_added)
            found.append(commit)
        if most is None and oldest and not found:
            raise PipelineError(
                f"{self._location}: its history with our commits was cleaned up "
                "(delta.logRetentionDuration). Archive into another table."
            )
        return found

    def _history(self, most: int | None) -> Iterable[tuple[int, str | None, dict[str, Any] | None]]:
        """Return version, user metadata and metrics of the table's commits, newest first."""
        log = self._log
        if log.is_dir():
            # Read the files directly: DESCRIBE HISTORY below runs a Spark job each time.
            versions = sorted(int(each.stem) for each in log.glob("[0-9]" * 20 + ".json"))
            return [_read_commit(log, version) for version in versions[::-1][:most]]
        limit = "" if most is None else f" LIMIT {most}"
        rows = self._spark.sql(f"DESCRIBE HISTORY {self._location.sql}{limit}")
        return [tuple(row) for row in rows.select(*_HISTORY).collect()]

    def append(
        self, frame: Any, before: CommitMetadata, planned: CommitMetadata, counted: RowCount
    ) -> CommitMetadata:
        sums = {"total_rows": before.total_rows, "checksum": before.checksum}
        self._commit(frame, msgspec.structs.replace(planned, pending=True, **sums), _APP)
        for commit in self._commits(_RECENT):
            if commit.id == planned.id:
                try:
                    return self.settle(commit, lambda _: counted())
                except ConcurrentCommit:
                    # The rows are committed; another archiver settled them or the next round does.
                    return commit
        raise self._concurrent_commit()

    def settle(self, state: CommitMetadata, recounted: CommitRecount) -> CommitMetadata:
        if not state.pending:
            return state
        whole = with_rows(state, state, state.rows, *recounted(state))
        self._commit(self.frame().limit(0), whole, _SUMS)
        return whole

    def _commit(self, frame: Any, commit: CommitMetadata, app: str) -> None:
        """Commit the rows with their metadata, unless `app` already has a commit of this number."""
        writer = (
            frame.write.format("delta")
            .mode("append")
            .option("mergeSchema", "true")
            .option("userMetadata", encode(commit))
            .option("txnAppId", app)
            .option("txnVersion", commit.number)
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

    def frame(self) -> Any:
        if self._location.is_path:
            return self._spark.read.format("delta").load(self._location.path)
        return self._spark.read.table(self._location.name)

    def compact(self, target_bytes: int) -> int:
        name = "spark.databricks.delta.optimize.maxFileSize"
        self._spark.conf.set(name, str(target_bytes))
        metrics = self._spark.sql(f"OPTIMIZE {self._location.sql}").first()["metrics"]
        return int(metrics["numFilesRemoved"]) - int(metrics["numFilesAdded"])


class _Info(msgspec.Struct, frozen=True):
    userMetadata: str | None = None
    operationMetrics: dict[str, Any] | None = None


class _Action(msgspec.Struct, frozen=True):
    commitInfo: _Info | None = None


_ACTION = msgspec.json.Decoder(_Action)


def _read_commit(log: Path, version: int) -> tuple[int, str | None, dict[str, Any] | None]:
    """Return what a version's log file says of its commit; None if it was cleaned up."""
    try:
        lines = (log / f"{version:020d}.json").read_bytes().splitlines()
    except FileNotFoundError:
        return version, None, None
    for line in lines:
        info = _ACTION.decode(line).commitInfo
        if info is not None:
            return version, info.userMetadata, info.operationMetrics
    return version, None, None


def _clear_unfinished_log(log: Path) -> None:
    """Delete the files of a log without a version: Delta cannot create a table there."""
    for each in [*sorted(log.rglob("*"), reverse=True), log]:
        if DeltaTable.unfinished.fullmatch(each.relative_to(log.parent).as_posix()):
            # Fails if another process has just created the table: the directory is not empty then.
            with suppress(OSError):
                each.rmdir() if each.is_dir() else each.unlink()
