"""An archive that is a Delta table.

Rules
- Our state is the `userMetadata` of our newest commit: Delta writes it in the same step as the
  rows. OPTIMIZE, VACUUM and the like by others may stand above it in the history.
- The sum of the rows' hashes is only known behind their commit: a second, empty commit of the
  same number adds it. A crash between the two leaves a commit `pending`; the next run settles it
  before anything else, so nothing is trimmed whose sum is not kept.
- Commits carry Delta's own transaction id (`txnAppId`, `txnVersion` = our number). Of two
  archivers with one number, Delta lets one win and refuses or leaves out the other; which of the
  two it was is read back.
"""

import re
from collections.abc import Iterable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import msgspec

from korvet.pipeline.errors import ForeignTable, Overtaken, PipelineError
from korvet.pipeline.places import Place
from korvet.pipeline.ranges import NOTHING, Commit, decode, encode, grown
from korvet.pipeline.rows import DDL
from korvet.pipeline.session import said
from korvet.pipeline.table import Counted, Making, Recounted, fresh, missing

PROPERTY = "korvet.archive"
_APP = "korvet-archive"
_SUMS = "korvet-archive-sums"
_RECENT = 20
_UNMADE = re.compile(r"_delta_log(/\..*|/_\w+)?")
"""What there is of a table before its first version: a log with hidden files and folders alone."""
_CONFLICT = re.compile("DELTA_CONCURRENT|DELTA_METADATA_CHANGED")
_HISTORY = ("version", "userMetadata", "operationMetrics")


class DeltaTable:
    """See the module."""

    def __init__(self, spark: Any, place: Place) -> None:
        self._spark = spark
        self._place = place

    @classmethod
    def open(cls, spark: Any, place: Place, making: Making | None) -> Self:
        """The table at the place; made there if nothing is, and `making` says so."""
        table = cls(spark, place)
        properties = table._properties()
        if properties is None:
            if making is None:
                raise missing(place)
            if place.is_path:
                if not fresh(Path(place.path), _UNMADE):
                    raise ForeignTable(
                        f"{place} is not empty and no Delta table: nothing was written."
                    )
                _clear(Path(place.path, "_delta_log"))
            table._make()
        elif PROPERTY not in properties:
            raise ForeignTable(f"{place} is a Delta table that no archive of Korvet has made.")
        return table

    def _properties(self) -> dict[str, Any] | None:
        from pyspark.errors import AnalysisException

        try:
            detail = self._detail()
        except AnalysisException:
            return None
        if detail["format"] != "delta":
            raise ForeignTable(f"{self._place} is no Delta table.")
        return dict(detail["properties"])

    def _detail(self) -> Any:
        return self._spark.sql(f"DESCRIBE DETAIL {self._place.sql}").first()

    @cached_property
    def _log(self) -> Path:
        """The directory of the table's log, if it is one of a file system."""
        root = self._place.path or self._detail()["location"].removeprefix("file:")
        return Path(root, "_delta_log")

    def _make(self) -> None:
        self._check_catalog()
        try:
            self._spark.sql(
                f"CREATE TABLE IF NOT EXISTS {self._place.sql} ({DDL}, date DATE) USING delta "
                f"PARTITIONED BY (date) TBLPROPERTIES ('{PROPERTY}' = '1')"
            )
        except Exception as error:
            raise PipelineError(f"{self._place} cannot be made: {said(error)}") from error

    def _check_catalog(self) -> None:
        """Spark's own catalog of names is gone when Spark ends, unless it is Hive's."""
        name = self._place.name
        ours = name.count(".") < 2 or name.startswith("spark_catalog.")
        kind = self._spark.conf.get("spark.sql.catalogImplementation", "in-memory")
        if name and ours and kind == "in-memory":
            raise PipelineError(
                f"Nobody would know the name {name} after this job: Spark keeps it in memory only. "
                "Give a path, or a lasting catalog: --conf spark.sql.catalogImplementation=hive."
            )

    def state(self) -> Commit:
        found = self._newest(_RECENT) or self._newest(None)
        return NOTHING if found is None else found

    def _newest(self, most: int | None) -> Commit | None:
        found = self._commits(most)
        return found[0] if found else None

    def _commits(self, most: int | None) -> list[Commit]:
        """Our commits, newest first."""
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
                f"{self._place}: the part of its history that said what is archived has been "
                "cleaned up (delta.logRetentionDuration). Archive into another table."
            )
        return found

    def _history(self, most: int | None) -> Iterable[tuple[int, str | None, dict[str, Any] | None]]:
        """The table's history, newest first: version, user metadata, metrics."""
        log = self._log
        if log.is_dir():
            # What the statement below reads, too, with a Spark job each time.
            versions = sorted(int(each.stem) for each in log.glob("*.json") if _is_commit(each))
            return [_told(log, version) for version in versions[::-1][:most]]
        limit = "" if most is None else f" LIMIT {most}"
        rows = self._spark.sql(f"DESCRIBE HISTORY {self._place.sql}{limit}")
        return [tuple(row) for row in rows.select(*_HISTORY).collect()]

    def append(self, frame: Any, before: Commit, planned: Commit, counted: Counted) -> Commit:
        sums = {"total_rows": before.total_rows, "checksum": before.checksum}
        self._commit(frame, msgspec.structs.replace(planned, pending=True, **sums), _APP)
        for commit in self._commits(_RECENT):
            if commit.id == planned.id:
                try:
                    return self.settle(commit, lambda _: counted())
                except Overtaken:
                    # The rows are in; somebody else has settled them, or the next round will.
                    return commit
        raise self._overtaken()

    def settle(self, state: Commit, recounted: Recounted) -> Commit:
        if not state.pending:
            return state
        whole = grown(state, state, state.rows, *recounted(state))
        self._commit(self.frame().limit(0), whole, _SUMS)
        return whole

    def _commit(self, frame: Any, told: Commit, app: str) -> None:
        """The rows and what is told of them are in the table; not if `app` has that number."""
        writer = (
            frame.write.format("delta")
            .mode("append")
            .option("mergeSchema", "true")
            .option("userMetadata", encode(told))
            .option("txnAppId", app)
            .option("txnVersion", told.number)
        )
        try:
            if self._place.is_path:
                writer.save(self._place.path)
            else:
                writer.saveAsTable(self._place.name)
        except Exception as error:
            # Somebody else's new column is in the way, too, of rows that had none for it.
            if "oncurrent" in type(error).__name__ or _CONFLICT.search(str(error)):
                raise self._overtaken() from error
            raise

    def _overtaken(self) -> Overtaken:
        return Overtaken(f"Somebody else archives into {self._place}.")

    def frame(self) -> Any:
        if self._place.is_path:
            return self._spark.read.format("delta").load(self._place.path)
        return self._spark.read.table(self._place.name)

    def compact(self, target_bytes: int) -> int:
        name = "spark.databricks.delta.optimize.maxFileSize"
        self._spark.conf.set(name, str(target_bytes))
        metrics = self._spark.sql(f"OPTIMIZE {self._place.sql}").first()["metrics"]
        return int(metrics["numFilesRemoved"]) - int(metrics["numFilesAdded"])


class _Info(msgspec.Struct, frozen=True):
    userMetadata: str | None = None
    operationMetrics: dict[str, Any] | None = None


class _Action(msgspec.Struct, frozen=True):
    commitInfo: _Info | None = None


_ACTION = msgspec.json.Decoder(_Action)


def _is_commit(file: Path) -> bool:
    return len(file.stem) == 20 and file.stem.isdigit()


def _told(log: Path, version: int) -> tuple[int, str | None, dict[str, Any] | None]:
    """What a version's own file says of it; nothing, if it has been cleaned up meanwhile."""
    try:
        lines = (log / f"{version:020d}.json").read_bytes().splitlines()
    except FileNotFoundError:
        return version, None, None
    for line in lines:
        info = _ACTION.decode(line).commitInfo
        if info is not None:
            return version, info.userMetadata, info.operationMetrics
    return version, None, None


def _clear(log: Path) -> None:
    """Nothing is left of a log without a version: Delta makes no table where one is."""
    for each in [*sorted(log.rglob("*"), reverse=True), log]:
        if _UNMADE.fullmatch(each.relative_to(log.parent).as_posix()):
            # Not where somebody else has just made the table: then it is not empty.
            with suppress(OSError):
                each.rmdir() if each.is_dir() else each.unlink()
