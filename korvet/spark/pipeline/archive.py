"""`archive`: copy topics into a table, each record exactly once.

Rules
- One round: read what the table holds, read the log after it, commit the rows together with their
  offsets. A crash before the commit leaves nothing, a crash after it leaves everything.
- After a concurrent commit by another archiver, read the table's state again and continue from it.
- Trim the log only up to what a commit, read back from the table, says the table holds.
"""

import time
import uuid
from collections.abc import Callable
from typing import Any

import msgspec
from pyspark.sql import Observation
from pyspark.sql import functions as f

from korvet.spark.metadata import MetadataClient
from korvet.spark.options import Connection
from korvet.spark.pipeline import trim
from korvet.spark.pipeline.avro_columns import AvroById
from korvet.spark.pipeline.commit_metadata import CommitMetadata, next_commit
from korvet.spark.pipeline.delta_table import DeltaTable
from korvet.spark.pipeline.errors import ConcurrentCommit
from korvet.spark.pipeline.iceberg_table import IcebergTable
from korvet.spark.pipeline.next_commit import (
    ArchiveTarget,
    NextCommit,
    archive_target,
    archived_span,
    find_replaced_tails,
    plan_next_commit,
    read_frame,
    tail_lost_error,
)
from korvet.spark.pipeline.parquet_table import ParquetTable
from korvet.spark.pipeline.row_hash import (
    DDL,
    checksum,
    partial_sums,
    row_hash,
    with_date,
    within_spans,
)
from korvet.spark.pipeline.table import ArchiveTable
from korvet.spark.pipeline.table_location import TableLocation
from korvet.spark.pipeline.typed_columns import TypedColumns
from korvet.spark.plan.splits import range_sizes

MAX_ATTEMPTS = 8
MIN_FILE_BYTES = 16 << 20


class ArchiveJob(msgspec.Struct, frozen=True):
    """The options of an archive job."""

    connection: Connection
    topics: tuple[str, ...]
    values: str = "bytes"
    max_records: int = 4_000_000
    """Approximate records per commit: the work lost in a crash, and the size of one Spark job."""
    target_bytes: int = 128 << 20
    trim_older_ms: int | None = None
    skip_lost: bool = False
    avro_schema: str | AvroById | None = None


class ArchivedCommit(msgspec.Struct, frozen=True):
    """A commit as reported to the user."""

    commit: int
    records: int
    seconds: float
    spans: tuple[str, ...]
    trimmed: int = 0


Watch = Callable[[ArchivedCommit], None]


class Archiver:
    """Archives topics into one table, commit by commit."""

    def __init__(self, spark: Any, table: ArchiveTable, job: ArchiveJob) -> None:
        self._spark = spark
        self._table = table
        self._job = job
        self._typing = TypedColumns(spark, job.values, job.avro_schema, widens=table.widens)

    def waiting(self) -> int:
        """Return how many records are in the log but not in the table."""
        with MetadataClient(self._job.connection) as metadata:
            target = archive_target(metadata, self._job.topics)
            state, skip_lost = self._table.state(), self._job.skip_lost
            step = plan_next_commit(metadata, state, target, 2**52, skip_lost=skip_lost)
        return 0 if step is None else step.records

    def catch_up(self, watch: Watch) -> int:
        """Archive what is in the log now and return how many records were added."""
        with MetadataClient(self._job.connection) as metadata:
            target = archive_target(metadata, self._job.topics)
            metadata.with_reconnect()
            records = conflicts = 0
            while True:
                began = time.monotonic()
                try:
                    state = self._table.settle(self._table.state(), self._recount)
                    step = plan_next_commit(
                        metadata,
                        state,
                        target,
                        self._job.max_records,
                        skip_lost=self._job.skip_lost,
                    )
                    if step is None:
                        self.trim(metadata, target)
                        return records
                    commit = self._write(metadata, state, step)
                except ConcurrentCommit:
                    conflicts += 1
                    if conflicts == MAX_ATTEMPTS:
                        raise
                    continue
                conflicts = 0
                records += commit.rows
                trimmed = self.trim(metadata, target)
                seconds = round(time.monotonic() - began, 3)
                spans = tuple(str(span) for span in commit.spans if span.start < span.end)
                watch(ArchivedCommit(commit.number, commit.rows, seconds, spans, trimmed))

    def trim(self, metadata: MetadataClient, target: ArchiveTarget) -> int:
        """Trim archived records that are old enough; return how many entries were removed."""
        if self._job.trim_older_ms is None:
            return 0
        moment = int(time.time() * 1000) - self._job.trim_older_ms
        state = self._table.state()
        archived = [(part, archived_span(state, part)) for part in target.logs]
        ends = [(part, span.end) for part, span in archived if span is not None]
        return trim.trim_archived(metadata, ends, moment)

    def _write(
        self, metadata: MetadataClient, state: CommitMetadata, step: NextCommit
    ) -> CommitMetadata:
        seen = Observation(f"archived-{uuid.uuid4().hex}")
        hashes = [each.alias(f"hash{n}") for n, each in enumerate(partial_sums(row_hash()))]
        typed, columns = self._typing.typed(self._read(metadata, step), state.columns)
        # Observe last: inferring the columns' types runs another query.
        rows = with_date(typed).observe(seen, f.count(f.lit(1)).alias("rows"), *hashes)

        def counted() -> tuple[int, int]:
            # Fails if a topic was deleted and created again meanwhile: its id would be wrong.
            metadata.bounds([each.log for each in step.ranges])
            if not step.ranges:
                return 0, 0
            # Fails if the records read are not those of the fingerprints.
            if others := find_replaced_tails(metadata, step.fingerprinted):
                raise tail_lost_error(others)
            found = seen.get
            return found["rows"], checksum(*(found[f"hash{n}"] for n in range(len(hashes))))

        planned = next_commit(
            state,
            step.spans,
            id=uuid.uuid4().hex,
            values=self._job.values,
            columns=columns,
            partitions={**state.partitions, **step.partitions},
        )
        return self._table.append(rows, state, planned, counted)

    def _recount(self, commit: CommitMetadata) -> tuple[int, int]:
        """Return row count and checksum of a commit from the table."""
        rows = self._table.frame().where(within_spans(s for s in commit.spans if not s.lost))
        found = rows.agg(f.count(f.lit(1)), *partial_sums(row_hash())).first()
        return found[0], checksum(*found[1:])

    def _read(self, metadata: MetadataClient, step: NextCommit) -> Any:
        if not step.ranges:
            return self._spark.createDataFrame([], DDL)
        cores = self._spark.sparkContext.defaultParallelism
        size = sum(range_sizes(metadata, step.ranges))
        pieces = max(-(-size // self._job.target_bytes), min(cores, -(-size // MIN_FILE_BYTES)), 1)
        limits = {
            "minPartitions": str(pieces),
            "maxBytesPerPartition": str(max(MIN_FILE_BYTES, -(-size // pieces))),
        }
        frame = read_frame(self._spark, self._job.connection, step.ranges, **limits)
        return frame.coalesce(pieces)


def run_archiver(
    archiver: Archiver, watch: Watch, *, every_s: float | None, stop: Callable[[float], bool]
) -> int:
    """Archive once, or repeatedly until `stop` returns True; it waits for the given seconds.

    A round starts `every_s` after the start of the previous one, or at once if that took longer.
    """
    total = 0
    while True:
        began = time.monotonic()
        total += archiver.catch_up(watch)
        if every_s is None or stop(max(0.0, began + every_s - time.monotonic())):
            return total


_FORMATS: dict[str, type[ArchiveTable]] = {
    "parquet": ParquetTable,
    "delta": DeltaTable,
    "iceberg": IcebergTable,
}


def open_table(spark: Any, location: TableLocation, values: str | None = None) -> ArchiveTable:
    """Open the table; create it if `values` is given, else raise NoArchive or ForeignTable."""
    return _FORMATS[location.format].open(spark, location, values)
