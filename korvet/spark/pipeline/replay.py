"""`replay`: write a table's rows to a topic, exactly once over all runs.

Rules
- The first run stores a plan in Redis: end offsets, number of tasks, partition count of the topic.
  Later runs of the same replay then have the same rows in the same tasks and partitions, even if
  table and topic have grown. The sink skips what is already written.
- An empty table stores no plan: rows that it gets later would never be replayed.
- All rows of a partition are in one task, in order of their offsets.
"""

import hashlib
import time
from collections.abc import Iterator
from typing import Any

import msgspec
from pyspark.sql import functions as f

from korvet.scripts.producer_state import KEEP_MS
from korvet.spark.metadata import MetadataClient
from korvet.spark.options import Connection
from korvet.spark.pipeline.commit_metadata import Span
from korvet.spark.pipeline.errors import PipelineError
from korvet.spark.pipeline.row_hash import within_spans
from korvet.spark.pipeline.spark_session import error_text
from korvet.spark.pipeline.table import ArchiveTable
from korvet.spark.pipeline.table_location import TableLocation
from korvet.topics.table import Topic

COLUMNS = ("key", "value", "headers", "timestamp", "partition")


class ReplayOptions(msgspec.Struct, frozen=True):
    """The rows to write and how. Times are ISO 8601, in UTC unless they have an offset."""

    since: str | None = None
    until: str | None = None
    where: str | None = None
    rate: int | None = None
    keep_timestamps: bool = False
    name: str | None = None
    """A replay with another name is written again."""


class ReplayPlan(msgspec.Struct, frozen=True):
    """The plan that the first run stored."""

    archived: tuple[Span, ...]
    tasks: int
    partitions: int
    """Partition count of the topic."""


class ReplayResult(msgspec.Struct, frozen=True):
    """The result of a run."""

    replay: str
    records: int
    seconds: float
    done_before: bool


def replay(
    spark: Any,
    table: ArchiveTable,
    location: TableLocation,
    connection: Connection,
    topic: str,
    wanted: ReplayOptions,
) -> ReplayResult:
    """Write the selected rows to the topic, exactly once over all runs of this replay."""
    began = time.monotonic()
    state = table.state()
    with MetadataClient(connection) as metadata:
        target = metadata.topic(topic)
        name = _writer_id(location, target, wanted)
        if not state.archived:
            return ReplayResult(name, 0, 0.0, False)
        tasks = max(2, spark.sparkContext.defaultParallelism, min(64, len(state.archived)))
        plan = msgspec.json.encode(ReplayPlan(state.archived, tasks, target.partitions))
        found = metadata.store.run(
            metadata.keys.writer_pin_plan(
                writer=metadata.keys.writer(f"job-{name}"),
                plan=plan,
                keep_ms=KEEP_MS,
            )
        )
    if found.committed >= 0:
        return ReplayResult(name, 0, 0.0, True)
    stored = msgspec.json.decode(found.plan, type=ReplayPlan)
    rows = _select_rows(table.frame(), stored, wanted)
    records = rows.count()
    if wanted.rate is not None:
        at_once = min(stored.tasks, spark.sparkContext.defaultParallelism)
        rows = rows.mapInArrow(_throttle(wanted.rate, at_once), rows.schema)
    options = {
        "redisUrl": connection.redis,
        "namespace": connection.namespace,
        "topic": topic,
        "writeId": name,
        "includeTimestamp": str(wanted.keep_timestamps).lower(),
    }
    rows.write.format("korvet").options(**options).mode("append").save()
    return ReplayResult(name, records, round(time.monotonic() - began, 3), False)


def _writer_id(location: TableLocation, target: Topic, wanted: ReplayOptions) -> str:
    identity = msgspec.structs.replace(wanted, rate=None)
    text = "\n".join((str(location), target.id, msgspec.json.encode(identity).decode()))
    return "replay-" + hashlib.sha256(text.encode()).hexdigest()[:24]


def _select_rows(frame: Any, plan: ReplayPlan, wanted: ReplayOptions) -> Any:
    frame = frame.where(within_spans(plan.archived))
    try:
        if wanted.since is not None:
            frame = frame.where(f.col("timestamp") >= f.lit(wanted.since).cast("timestamp"))
        if wanted.until is not None:
            frame = frame.where(f.col("timestamp") < f.lit(wanted.until).cast("timestamp"))
        if wanted.where is not None:
            frame = frame.where(wanted.where)
        ordered = frame.repartition(plan.tasks, "topic", "partition").sortWithinPartitions(
            "topic", "partition", "offset"
        )
        # Rows keep their partition if the topic has one of that number.
        fits = f.when(f.col("partition") < plan.partitions, f.col("partition"))
        return ordered.withColumn("partition", fits).select(*COLUMNS)
    except Exception as error:
        raise PipelineError(f"Rows cannot be selected: {error_text(error)}") from error


def _throttle(rate: int, at_once: int) -> Any:
    """Limit the rows to about `rate` per second over `at_once` parallel tasks."""
    pace = max(1.0, rate / at_once)

    def slowly(batches: Iterator[Any]) -> Iterator[Any]:
        began, sent = time.monotonic(), 0
        for batch in batches:
            for start in range(0, batch.num_rows, step := max(1, int(pace))):
                part = batch.slice(start, step)
                sent += part.num_rows
                yield part
                time.sleep(max(0.0, began + sent / pace - time.monotonic()))

    return slowly
