"""An archive that is an Iceberg table.

Rules
- Our state stands in the summary of our newest snapshot. Snapshots by others (compaction) may
  stand above it.
- Iceberg never refuses an append because of another one. So rows are appended to a branch that
  begins at the snapshot whose state was read, an empty snapshot behind them says what they are,
  and `main` is then moved to its end: only forward, in one step, and not if it has moved
  meanwhile. Of two archivers one wins; a crash leaves a branch that nobody reads, which a later
  commit removes.
- Iceberg makes a branch that has gone anew, from `main`, for whoever commits to it. So what stands
  between `main` and the branch's end is looked at before `main` is moved: ours alone.
- Snapshots are not kept for ever: the metadata names them all, and every commit writes it anew.
"""

import re
import time
import uuid
from pathlib import Path
from typing import Any, Self

from korvet.pipeline.errors import ForeignTable, Overtaken, PipelineError
from korvet.pipeline.places import Place
from korvet.pipeline.ranges import NOTHING, Commit, decode, encode, grown
from korvet.pipeline.rows import DDL
from korvet.pipeline.session import said
from korvet.pipeline.table import Counted, Making, Recounted, fresh, missing

PROPERTY = "korvet.archive"
SUMMARY = "korvet.commit"
BRANCH = "korvet_"
_NAMED = re.compile(BRANCH + r"(\d+)_[0-9a-f]{32}")
_UNMADE = re.compile(
    r"metadata(/\.?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.metadata\.json(\.crc)?)?"
)
"""What there is of a Hadoop table before its first version, which gets its name last."""
STALE_MS = 3_600_000
DAY_MS = 86_400_000
EXPIRE_EVERY = 20


class IcebergTable:
    """See the module."""

    def __init__(self, spark: Any, place: Place) -> None:
        self._spark = spark
        self._place = place

    @classmethod
    def open(cls, spark: Any, place: Place, making: Making | None) -> Self:
        """The table at the place; made there if nothing is, and `making` says so."""
        table = cls(spark, place)
        if not table._exists():
            if making is None:
                raise missing(place)
            if place.is_path and not fresh(Path(place.path), _UNMADE):
                raise ForeignTable(f"{place} is not empty and no Iceberg table: nothing written.")
            table._make()
        elif PROPERTY not in dict(table._load().properties()):
            raise ForeignTable(f"{place} is an Iceberg table that no archive of Korvet has made.")
        return table

    def _exists(self) -> bool:
        if self._place.is_path and not (Path(self._place.path) / "metadata").is_dir():
            return False
        return bool(self._spark.catalog.tableExists(self._place.sql))

    def _load(self) -> Any:
        """The Java table, as it is now."""
        loader = self._spark._jvm.org.apache.iceberg.spark.Spark3Util
        table = loader.loadIcebergTable(self._spark._jsparkSession, self._place.sql)
        table.refresh()
        return table

    def _make(self) -> None:
        catalog, *within = self._place.name.split(".")[:-1] or [""]
        try:
            if within:
                # Most catalogs want a table's namespace to be there.
                self._spark.sql(
                    f"CREATE NAMESPACE IF NOT EXISTS `{catalog}`.`{'`.`'.join(within)}`"
                )
            self._spark.sql(
                f"CREATE TABLE IF NOT EXISTS {self._place.sql} ({DDL}, date DATE) USING iceberg "
                f"PARTITIONED BY (date) TBLPROPERTIES ('{PROPERTY}' = '1', "
                "'format-version' = '2', 'write.spark.accept-any-schema' = 'true', "
                "'write.distribution-mode' = 'none', 'write.parquet.compression-codec' = 'snappy', "
                # A commit of ours is five of Iceberg's; each writes all that is known anew.
                "'write.metadata.delete-after-commit.enabled' = 'true', "
                "'write.metadata.previous-versions-max' = '20', "
                f"'history.expire.max-snapshot-age-ms' = '{DAY_MS}')"
            )
        except Exception as error:
            raise PipelineError(f"{self._place} cannot be made: {said(error)}") from error

    def state(self) -> Commit:
        return _state_of(self._load())

    def append(self, frame: Any, before: Commit, planned: Commit, counted: Counted) -> Commit:
        table = self._load()
        if table.currentSnapshot() is None:
            table.newAppend().commit()
            table.refresh()
        if _state_of(table).number != before.number:
            raise self._overtaken()
        _drop_stale(table)
        branch = f"{BRANCH}{_now_ms()}_{uuid.uuid4().hex}"
        base = table.currentSnapshot().snapshotId()
        table.manageSnapshots().createBranch(branch, base).commit()
        try:
            self._write(frame, branch)
            written, rows = self._written(branch, base)
            self._tell(branch, grown(before, planned, rows, *counted()))
            self._forward(branch, written)
        finally:
            table.refresh()
            if branch in dict(table.refs()):
                table.manageSnapshots().removeBranch(branch).commit()
        if planned.number % EXPIRE_EVERY == 0:
            # Right behind a commit of ours, so that the newest stays. How old is the table's word.
            table.refresh()
            table.expireSnapshots().commit()
        return self.state()

    def _write(self, frame: Any, branch: str) -> None:
        """The rows are in the branch."""
        try:
            (
                frame.writeTo(f"{self._place.sql}.branch_{branch}")
                .option("fanout-enabled", "true")
                .option("mergeSchema", "true")
                .option("check-ordering", "false")
                .append()
            )
        except Exception as error:
            if self._load().snapshot(branch) is None:
                raise self._overtaken() from error
            raise

    def _written(self, branch: str, base: int) -> tuple[int, int]:
        """The branch's end, right behind its base, and how many rows it has that its base has not,
        as Iceberg counts them; or Overtaken."""
        snapshot = self._load().snapshot(branch)
        if snapshot is not None and snapshot.snapshotId() == base:
            return base, 0
        if snapshot is None or snapshot.parentId() != base:
            raise self._overtaken()
        return snapshot.snapshotId(), int(snapshot.summary().get("added-records") or 0)

    def _tell(self, branch: str, commit: Commit) -> None:
        """The branch ends in a snapshot that says what it holds."""
        self._load().newAppend().toBranch(branch).set(SUMMARY, encode(commit)).commit()

    def _forward(self, branch: str, written: int) -> None:
        """`main` is where the branch is, one snapshot behind what was written; or Overtaken."""
        table = self._load()
        end = table.snapshot(branch)
        if end is None or end.parentId() != written:
            raise self._overtaken()
        try:
            table.manageSnapshots().fastForwardBranch("main", branch).commit()
        except Exception as error:
            if "ancestor" in str(error) or "CommitFailed" in str(error):
                raise self._overtaken() from error
            raise

    def _overtaken(self) -> Overtaken:
        return Overtaken(f"Somebody else archives into {self._place}.")

    def frame(self) -> Any:
        return self._spark.table(self._place.sql)

    def settle(self, state: Commit, recounted: Recounted) -> Commit:
        return state

    def compact(self, target_bytes: int) -> int:
        catalog, _, name = self._place.sql.partition(".")
        found = self._spark.sql(
            f"CALL {catalog}.system.rewrite_data_files(table => '{name}', "
            f"options => map('target-file-size-bytes', '{target_bytes}', 'min-input-files', '2'))"
        ).first()
        return int(found["rewritten_data_files_count"]) - int(found["added_data_files_count"])


def _state_of(table: Any) -> Commit:
    snapshot = table.currentSnapshot()
    while snapshot is not None:
        summary = snapshot.summary()
        text = summary.get(SUMMARY)
        if text is not None:
            return decode(text)
        parent = snapshot.parentId()
        snapshot = None if parent is None else table.snapshot(parent)
        if parent is not None and snapshot is None:
            raise PipelineError(
                f"{table.name()}: the snapshots that said what is archived have been expired. "
                "Roll back to one of Korvet's, or archive into another table."
            )
    return NOTHING


def _drop_stale(table: Any) -> None:
    """Branches that a crash left behind an hour ago are gone."""
    oldest = _now_ms() - STALE_MS
    for name, reference in dict(table.refs()).items():
        if name.startswith(BRANCH) and _begun(table, name, reference.snapshotId()) < oldest:
            table.manageSnapshots().removeBranch(name).commit()


def _begun(table: Any, branch: str, end: int) -> int:
    """When the branch was made, ms. Names used not to say it: such a branch is as old as what was
    written to it, and new as long as nothing was."""
    moment = _NAMED.fullmatch(branch)
    if moment is not None:
        return int(moment[1])
    snapshot = table.currentSnapshot()
    while snapshot is not None and snapshot.snapshotId() != end:
        parent = snapshot.parentId()
        snapshot = None if parent is None else table.snapshot(parent)
    return _now_ms() if snapshot is not None else int(table.snapshot(end).timestampMillis())


def _now_ms() -> int:
    return int(time.time() * 1000)
