"""An archive as an Iceberg table.

Rules
- The summary of our newest snapshot has number, sums and the name of the state file. Snapshots by
  others (compaction) may be newer.
- One commit of Iceberg per commit of ours. Spark writes the data files without a commit, as for
  Iceberg's compaction. Then their sums are known, and one snapshot adds files and pointer.
- Iceberg does not reject an append because of a concurrent one. So make the snapshot, check that
  its parent has the state that was read, and commit exactly that metadata: the catalog rejects it
  if another commit came first. A crash before leaves files that no snapshot has.
- Expire snapshots: the table metadata lists them all, and every commit writes it again. The state
  file of a snapshot is deleted after it.
"""

import re
import uuid
import zlib
from pathlib import Path
from typing import Any

import msgspec
from py4j.java_gateway import JavaMember
from py4j.protocol import STATIC_PREFIX
from pyspark.sql import functions as f

from korvet.spark.pipeline.commit_metadata import (
    EMPTY,
    CommitMetadata,
    decode,
    pointer_to,
    state_file,
    with_rows,
)
from korvet.spark.pipeline.errors import PipelineError
from korvet.spark.pipeline.table import ArchiveTable, RowCount
from korvet.spark.tiered.archive_table import (
    PROPERTY,
    STATES,
    SUMMARY,
    CommitPointer,
    decode_pointer,
)

DAY_MS = 86_400_000
EXPIRE_EVERY = 20
_MAIN = "main"
_TABLE_CACHE = STATIC_PREFIX + "org.apache.iceberg.spark.SparkTableCache"


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

    def _make(self, values: str) -> None:
        catalog, *within = self._location.name.split(".")[:-1] or [""]
        if within:
            # Most catalogs require the namespace of a table to exist.
            self._spark.sql(f"CREATE NAMESPACE IF NOT EXISTS `{catalog}`.`{'`.`'.join(within)}`")
        self._make_by_sql(
            ", 'format-version' = '2', 'write.spark.accept-any-schema' = 'true', "
            "'write.distribution-mode' = 'none', 'write.parquet.compression-codec' = 'snappy', "
            # Each commit writes all metadata again.
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
        if _number(table) != before.number:
            raise self._concurrent_commit()
        files = self._write(table, frame)
        rows = sum(file.recordCount() for file in files)
        commit = with_rows(before, planned, rows, *counted())
        pointer = _write_state(table, commit)
        update = table.newAppend().set(SUMMARY, msgspec.json.encode(pointer).decode())
        for file in files:
            update.appendFile(file)
        try:
            self._commit(table, update.apply(), before)
        except Exception as error:
            # Also after an error: the catalog may have taken the commit.
            if self.state().id == commit.id:
                return commit
            if "CommitFailed" in str(error):
                raise self._concurrent_commit() from error
            raise
        if planned.number % EXPIRE_EVERY == 0:
            self._expire()
        return self.state()

    def _write(self, table: Any, frame: Any) -> list[Any]:
        """Write the rows to data files of the table, without a commit; return the files."""
        wanted = self._evolve(table, frame)
        java = self._spark._jvm.org.apache.iceberg.spark
        # An attribute of Py4J's class is the first method of that name, in an order that differs
        # from JVM to JVM: get(String), which is not static, hides get(). A call looks at both.
        cache = JavaMember("get", None, _TABLE_CACHE, self._spark._jvm._gateway_client)()
        staged = java.FileRewriteCoordinator.get()
        name = uuid.uuid4().hex
        cache.add(name, table)
        # Iceberg adds the catalog of staged files to the settings of the thread's session.
        self._spark._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(
            self._spark._jsparkSession
        )
        try:
            (
                frame.select(*wanted)
                .write.format("iceberg")
                .option("fanout-enabled", "true")
                .option("check-ordering", "false")
                .option("distribution-mode", "none")
                .mode("append")
                .save(name)
            )
            return list(staged.fetchNewFiles(table, name))
        finally:
            cache.remove(name)
            staged.clearRewrite(table, name)

    def _evolve(self, table: Any, frame: Any) -> list[Any]:
        """Add the frame's new columns to the table; return the table's columns of the frame."""
        convert = self._spark._jvm.org.apache.iceberg.spark.SparkSchemaUtil.convert
        before = table.schema()
        fresh = convert(frame._jdf.schema())
        table.updateSchema().caseSensitive(False).unionByNameWith(fresh).commit()
        if not table.schema().sameSchema(before):
            table.refresh()
        given = {name.lower() for name in frame.columns}
        types = self._spark._jvm.org.apache.iceberg.spark.SparkSchemaUtil.convert(table.schema())
        return [
            f.col(f"`{field.name()}`")
            if field.name().lower() in given
            else f.lit(None).cast(field.dataType().simpleString()).alias(field.name())
            for field in types.fields()
        ]

    def _commit(self, table: Any, snapshot: Any, before: CommitMetadata) -> None:
        """Make the snapshot the newest of `main`, or raise ConcurrentCommit."""
        operations = table.operations()
        base = operations.current()
        newest = base.currentSnapshot()
        parent = None if newest is None else newest.snapshotId()
        if snapshot.parentId() != parent or _number(table) != before.number:
            raise self._concurrent_commit()
        build = self._spark._jvm.org.apache.iceberg.TableMetadata.buildFrom(base)
        operations.commit(base, build.setBranchSnapshot(snapshot, _MAIN).build())

    def _expire(self) -> None:
        """Expire old snapshots and delete their state files.

        Run directly after a commit of ours, so that the newest is kept. A table property says how
        old a snapshot may become.
        """
        table = self._load()
        before = _state_files(table)
        table.expireSnapshots().commit()
        table.refresh()
        for name in before - _state_files(table):
            table.io().deleteFile(f"{table.location()}/{STATES}/{name}")

    def frame(self) -> Any:
        return self._spark.table(self._location.sql)

    def compact(self, target_bytes: int) -> int:
        catalog, _, name = self._location.sql.partition(".")
        found = self._spark.sql(
            f"CALL {catalog}.system.rewrite_data_files(table => '{name}', "
            f"options => map('target-file-size-bytes', '{target_bytes}', 'min-input-files', '2'))"
        ).first()
        return int(found["rewritten_data_files_count"]) - int(found["added_data_files_count"])


def _pointer(snapshot: Any) -> CommitPointer | None:
    text = snapshot.summary().get(SUMMARY)
    return None if text is None else decode_pointer(text)


def _newest(table: Any) -> CommitPointer | None:
    """Return the pointer of our newest commit."""
    snapshot = table.currentSnapshot()
    while snapshot is not None:
        found = _pointer(snapshot)
        if found is not None:
            return found
        parent = snapshot.parentId()
        snapshot = None if parent is None else table.snapshot(parent)
        if parent is not None and snapshot is None:
            raise PipelineError(
                f"{table.name()}: the snapshots with our commits have expired. Roll back to one of "
                "them, or archive into another table."
            )
    return None


def _number(table: Any) -> int:
    found = _newest(table)
    return EMPTY.number if found is None else found.number


def _read_state(table: Any) -> CommitMetadata:
    found = _newest(table)
    if found is None:
        return EMPTY
    file = table.io().newInputFile(f"{table.location()}/{STATES}/{found.state}").newStream()
    try:
        return decode(zlib.decompress(bytes(file.readAllBytes())))
    finally:
        file.close()


def _write_state(table: Any, commit: CommitMetadata) -> CommitPointer:
    """Write the commit's state file and return what the commit has itself."""
    found = pointer_to(commit)
    path = f"{table.location()}/{STATES}/{found.state}"
    file = table.io().newOutputFile(path).createOrOverwrite()
    file.write(state_file(commit))
    file.close()
    return found


def _state_files(table: Any) -> set[str]:
    """Return the names of the state files that snapshots have."""
    found = map(_pointer, table.snapshots())
    return {each.state for each in found if each is not None}
