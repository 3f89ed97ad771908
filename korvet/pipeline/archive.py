"""`archive`: topics into a table, each record once.

Rules
- One round: read what the table has; read the log behind it; write the rows and, in the same
  commit, which offsets they are. A crash before the commit leaves nothing, one after it leaves all.
- Whoever is overtaken by another archiver reads the table's state again and goes on behind it.
- The log is trimmed only up to what a commit that was read back says the table has.
"""

import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from korvet.pipeline import trim
from korvet.pipeline.errors import Overtaken
from korvet.pipeline.plan import (
    Aim,
    Step,
    aim,
    next_step,
    reading,
    replaced,
    tail_lost,
)
from korvet.pipeline.ranges import Commit, followed
from korvet.pipeline.rows import DDL, checksum, dated, row_hash, sums, within
from korvet.pipeline.table import Table
from korvet.pipeline.values import Typing
from korvet.spark.catalog import Catalog
from korvet.spark.options import Connection

TRIES = 8
LEAST_FILE = 16 << 20


class Job(msgspec.Struct, frozen=True):
    """What to archive and how."""

    connection: Connection
    topics: tuple[str, ...]
    values: str = "bytes"
    most: int = 4_000_000
    """About so many records a commit: what a crash costs, and what one job has to hold."""
    target_bytes: int = 128 << 20
    trim_older_ms: int | None = None
    skip_lost: bool = False
    avro_schema: str | None = None


class Done(msgspec.Struct, frozen=True):
    """One commit, told to whoever watches."""

    commit: int
    records: int
    seconds: float
    spans: tuple[str, ...]
    trimmed: int = 0


Watch = Callable[[Done], None]


class Archiver:
    """Archives into one table, round by round."""

    def __init__(self, spark: Any, table: Table, job: Job) -> None:
        self._spark = spark
        self._table = table
        self._job = job
        self._typing = Typing(spark, job.values, job.avro_schema)

    def waiting(self) -> int:
        """How many records the log has that the table has not."""
        with Catalog(self._job.connection) as catalog:
            step = self._next(catalog, aim(catalog, self._job.topics), 2**52)
        return 0 if step is None else step.records

    def catch_up(self, watch: Watch) -> int:
        """The table has what the log had when this began; how many records were added."""
        with Catalog(self._job.connection) as catalog:
            target = aim(catalog, self._job.topics)
            catalog.patient()
            records = overtaken = 0
            while True:
                began = time.monotonic()
                try:
                    state = self._table.settle(self._table.state(), self._recounted)
                    step = next_step(
                        catalog, state, target, self._job.most, skip_lost=self._job.skip_lost
                    )
                    if step is None:
                        self.trim(catalog, target)
                        return records
                    commit = self._write(catalog, state, step)
                except Overtaken:
                    overtaken += 1
                    if overtaken == TRIES:
                        raise
                    continue
                overtaken = 0
                records += commit.rows
                trimmed = self.trim(catalog, target)
                watch(_done(commit, began, trimmed))

    def trim(self, catalog: Catalog, target: Aim) -> int:
        """What the table has and is old enough has left the log; how many entries."""
        if self._job.trim_older_ms is None:
            return 0
        moment = int(time.time() * 1000) - self._job.trim_older_ms
        state = self._table.state()
        held = [(part, state.held(part.topic, part.partition)) for part in target.logs]
        return trim.trim(
            catalog,
            [
                (part, span.end)
                for part, span in held
                if span is not None and span.topic_id == part.topic_id
            ],
            moment,
        )

    def _next(self, catalog: Catalog, target: Aim, most: int) -> Step | None:
        state = self._table.state()
        return next_step(catalog, state, target, most, skip_lost=self._job.skip_lost)

    def _write(self, catalog: Catalog, state: Commit, step: Step) -> Commit:
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        seen = Observation(f"archived-{uuid.uuid4().hex}")
        hashes = [each.alias(f"hash{n}") for n, each in enumerate(sums(row_hash()))]
        typed, columns = self._typing.typed(self._read(catalog, step), state.columns)
        # Watched last: finding out the columns' types is a query of its own.
        rows = dated(typed).observe(seen, f.count(f.lit(1)).alias("rows"), *hashes)

        def counted() -> tuple[int, int]:
            # A topic deleted and made again meanwhile would stand under the old one's id.
            catalog.bounds([each.log for each in step.ranges])
            if not step.ranges:
                return 0, 0
            # Nor may what was read be others than those that the marks are of.
            if others := replaced(catalog, step.marked):
                raise tail_lost(others)
            found = seen.get
            return found["rows"], checksum(*(found[f"hash{n}"] for n in range(len(hashes))))

        planned = followed(
            state,
            step.spans,
            id=uuid.uuid4().hex,
            values=self._job.values,
            columns=columns,
            partitions={**state.partitions, **step.partitions},
        )
        return self._table.append(rows, state, planned, counted)

    def _recounted(self, commit: Commit) -> tuple[int, int]:
        """The rows of a commit that is in the table, as they are there."""
        from pyspark.sql import functions as f

        rows = self._table.frame().where(within(s for s in commit.spans if not s.lost))
        found = rows.agg(f.count(f.lit(1)), *sums(row_hash())).first()
        return found[0], checksum(*found[1:])

    def _read(self, catalog: Catalog, step: Step) -> Any:
        if not step.ranges:
            return self._spark.createDataFrame([], DDL)
        options = reading(step.ranges)
        options["redis"] = self._job.connection.redis
        options["namespace"] = self._job.connection.namespace
        cores = self._spark.sparkContext.defaultParallelism
        size = _size(catalog, step)
        pieces = max(-(-size // self._job.target_bytes), min(cores, -(-size // LEAST_FILE)), 1)
        options["minPartitions"] = str(pieces)
        options["maxBytesPerPartition"] = str(max(LEAST_FILE, -(-size // pieces)))
        options["joinPartitions"] = "true"
        frame = self._spark.read.format("korvet").options(**options).load()
        return frame.coalesce(pieces)


def _size(catalog: Catalog, step: Step) -> int:
    """About how many bytes the step's records have in the log."""
    from korvet.spark.plan import bytes_in

    return sum(bytes_in(catalog, step.ranges))


def _done(commit: Commit, began: float, trimmed: int) -> Done:
    spans = tuple(str(span) for span in commit.spans if span.start < span.end)
    return Done(commit.number, commit.rows, round(time.monotonic() - began, 3), spans, trimmed)


def run(
    archiver: Archiver, watch: Watch, *, every_s: float | None, stop: Callable[[float], bool]
) -> int:
    """Archives once, or again and again until `stop` (which waits so many seconds) says so.

    A round begins `every_s` after the one before it began; at once, if that took longer.
    """
    total = 0
    while True:
        began = time.monotonic()
        total += archiver.catch_up(watch)
        if every_s is None or stop(max(0.0, began + every_s - time.monotonic())):
            return total


def topics_of(state: Commit) -> Sequence[str]:
    """The topics that a table holds."""
    return sorted({span.topic for span in state.archived})
