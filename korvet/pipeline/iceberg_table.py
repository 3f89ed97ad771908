"""An archive as an Iceberg table.

Rules
- The state is in the summary of our newest snapshot. Snapshots by others (compaction) may be newer.
- Iceberg does not reject an append because of a concurrent one. So append rows to a branch that
  starts at the snapshot whose state was read, and add an empty snapshot with the commit. Then
  fast-forward `main` to it: atomically, and only if `main` has not moved. One of two archivers
  wins. A crash leaves a branch, which a later commit drops.
- Iceberg recreates a dropped branch from `main` on the next commit to it. So check before the
  fast-forward that only our snapshots are between `main` and the end of the branch.
- Expire snapshots: the table metadata lists them all, and every commit writes it again.
"""

import re
import time
import uuid
from pathlib import Path
from typing import Any

from korvet.pipeline.commit_metadata import EMPTY, CommitMetadata, decode, encode, with_rows
from korvet.pipeline.errors import PipelineError
from korvet.pipeline.table import ArchiveTable, RowCount, TableCreation
from korvet.spark.tiered.archive_table import PROPERTY, SUMMARY

BRANCH = "korvet_"
_BRANCH_NAME = re.compile(BRANCH + r"(\d+)_[0-9a-f]{32}")
"""A branch of ours: its name has the time of its creation in ms."""
STALE_MS = 3_600_000
DAY_MS = 86_400_000
EXPIRE_EVERY = 20


class IcebergTable(ArchiveTable):
    """An Iceberg table with our commits."""

    kind = "an Iceberg table"
    widens = True
    unfinished = re.compile(
        r"metadata(/\.?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.metadata\.json(\.crc)?)?"
    )
    """Metadata files of a Hadoop table get their final name last."""

    def _exists(self) -> bool:
        if self._location.is_path and not (Path(self._location.path) / "metadata").is_dir():
            return False
        if not self._spark.catalog.tableExists(self._location.sql):
            return False
        if PROPERTY not in dict(self._load().properties()):
            raise self._foreign_table()
        return True

    def _load(self) -> Any:
        """Return the Java table, refreshed."""
        loader = self._spark._jvm.org.apache.iceberg.spark.Spark3Util
        table = loader.loadIcebergTable(self._spark._jsparkSession, self._location.sql)
        table.refresh()
        return table

    def _make(self, creation: TableCreation) -> None:
        catalog, *within = self._location.name.split(".")[:-1] or [""]
        if within:
            # Most catalogs require the namespace of a table to exist.
            self._spark.sql(f"CREATE NAMESPACE IF NOT EXISTS `{catalog}`.`{'`.`'.join(within)}`")
        self._make_by_sql(
            ", 'format-version' = '2', 'write.spark.accept-any-schema' = 'true', "
            "'write.distribution-mode' = 'none', 'write.parquet.compression-codec' = 'snappy', "
            # One commit makes five of Iceberg's, and each writes all metadata again.
            "'write.metadata.delete-after-commit.enabled' = 'true', "
            "'write.metadata.previous-versions-max' = '20', "
            f"'history.expire.max-snapshot-age-ms' = '{DAY_MS}'"
        )

    def state(self) -> CommitMetadata:
        return _read_state(self._load())

    def append(
        self, frame: Any, before: CommitMetadata, planned: CommitMetadata, counted: RowCount
    ) -> CommitMetadata:
        table = self._load()
        if table.currentSnapshot() is None:
            table.newAppend().commit()
            table.refresh()
        if _read_state(table).number != before.number:
            raise self._concurrent_commit()
        _drop_stale_branches(table)
        branch = f"{BRANCH}{_now_ms()}_{uuid.uuid4().hex}"
        base = table.currentSnapshot().snapshotId()
        table.manageSnapshots().createBranch(branch, base).commit()
        try:
            self._write(frame, branch)
            written, rows = self._written(branch, base)
            # An empty snapshot, with the commit in its summary.
            commit = encode(with_rows(before, planned, rows, *counted()))
            self._load().newAppend().toBranch(branch).set(SUMMARY, commit).commit()
            self._fast_forward(branch, written)
        finally:
            table.refresh()
            if branch in dict(table.refs()):
                table.manageSnapshots().removeBranch(branch).commit()
        if planned.number % EXPIRE_EVERY == 0:
            # Directly after a commit of ours, so that the newest is kept. A table property says
            # how old a snapshot may become.
            table.refresh()
            table.expireSnapshots().commit()
        return self.state()

    def _write(self, frame: Any, branch: str) -> None:
        """Append the rows to the branch."""
        try:
            (
                frame.writeTo(f"{self._location.sql}.branch_{branch}")
                .option("fanout-enabled", "true")
                .option("mergeSchema", "true")
                .option("check-ordering", "false")
                .append()
            )
        except Exception as error:
            if self._load().snapshot(branch) is None:
                raise self._concurrent_commit() from error
            raise

    def _written(self, branch: str, base: int) -> tuple[int, int]:
        """Return the branch's snapshot after its base and the rows added to it.

        Raises ConcurrentCommit if the branch has other snapshots.
        """
        snapshot = self._load().snapshot(branch)
        if snapshot is not None and snapshot.snapshotId() == base:
            return base, 0
        if snapshot is None or snapshot.parentId() != base:
            raise self._concurrent_commit()
        return snapshot.snapshotId(), int(snapshot.summary().get("added-records") or 0)

    def _fast_forward(self, branch: str, written: int) -> None:
        """Move `main` to the end of the branch, or raise ConcurrentCommit.

        The end must be the snapshot after `written`.
        """
        table = self._load()
        end = table.snapshot(branch)
        if end is None or end.parentId() != written:
            raise self._concurrent_commit()
        try:
            table.manageSnapshots().fastForwardBranch("main", branch).commit()
        except Exception as error:
            if "ancestor" in str(error) or "CommitFailed" in str(error):
                raise self._concurrent_commit() from error
            raise

    def frame(self) -> Any:
        return self._spark.table(self._location.sql)

    def compact(self, target_bytes: int) -> int:
        catalog, _, name = self._location.sql.partition(".")
        found = self._spark.sql(
            f"CALL {catalog}.system.rewrite_data_files(table => '{name}', "
            f"options => map('target-file-size-bytes', '{target_bytes}', 'min-input-files', '2'))"
        ).first()
        return int(found["rewritten_data_files_count"]) - int(found["added_data_files_count"])


def _read_state(table: Any) -> CommitMetadata:
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
                f"{table.name()}: the snapshots with our commits have expired. Roll back to one of "
                "them, or archive into another table."
            )
    return EMPTY


def _drop_stale_branches(table: Any) -> None:
    """Drop branches that a crash left more than STALE_MS ago."""
    oldest = _now_ms() - STALE_MS
    for name in dict(table.refs()):
        created = _BRANCH_NAME.fullmatch(name)
        if created is not None and int(created[1]) < oldest:
            table.manageSnapshots().removeBranch(name).commit()


def _now_ms() -> int:
    return int(time.time() * 1000)
