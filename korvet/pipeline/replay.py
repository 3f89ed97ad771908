"""`replay`: a table's rows become records of a topic, each once, however often it is run.

Rules
- What is to be replayed is pinned in Redis by the first run: up to which offsets, into how many
  tasks, and how many partitions the topic had. Later runs of the same replay find the same rows in
  the same tasks and partitions, whatever table and topic have got meanwhile; the sink then knows
  which of them it has.
- A table that holds nothing yet pins nothing: what it gets later would never be replayed.
- All rows of one partition are in one task, in order of their offsets.
"""

import hashlib
import time
from collections.abc import Iterator
from typing import Any

import msgspec

from korvet.pipeline.errors import PipelineError
from korvet.pipeline.places import Place
from korvet.pipeline.ranges import Span
from korvet.pipeline.rows import within
from korvet.pipeline.session import said
from korvet.pipeline.table import Table
from korvet.scripts import writer
from korvet.spark.catalog import Catalog
from korvet.spark.options import Connection
from korvet.topics.table import Topic

COLUMNS = ("key", "value", "headers", "timestamp", "partition")


class Wanted(msgspec.Struct, frozen=True):
    """Which rows, and how they are written. Times are ISO 8601, UTC where they do not say."""

    since: str | None = None
    until: str | None = None
    where: str | None = None
    rate: int | None = None
    keep_timestamps: bool = False
    name: str | None = None
    """A replay of another name happens again."""


class Plan(msgspec.Struct, frozen=True):
    """What the first run settled."""

    archived: tuple[Span, ...]
    tasks: int
    partitions: int = 0
    """Of the topic; 0: nobody settled that."""


class Replayed(msgspec.Struct, frozen=True):
    """What a run found and did."""

    replay: str
    records: int
    seconds: float
    done_before: bool


def replay(
    spark: Any, table: Table, place: Place, connection: Connection, topic: str, wanted: Wanted
) -> Replayed:
    """The rows are in the topic, once."""
    began = time.monotonic()
    state = table.state()
    with Catalog(connection) as catalog:
        target = catalog.topic(topic)
        name = _name(place, target, wanted)
        if not state.archived:
            return Replayed(name, 0, 0.0, False)
        tasks = max(2, spark.sparkContext.defaultParallelism, min(64, len(state.archived)))
        mine = msgspec.json.encode(Plan(state.archived, tasks, target.partitions))
        found = catalog.store.run(
            writer.pin_plan(catalog.keys, f"job-{name}", plan=mine, keep_ms=writer.KEEP_MS)
        )
    if found.committed >= 0:
        return Replayed(name, 0, 0.0, True)
    plan = msgspec.json.decode(found.plan, type=Plan)
    rows = _rows(table.frame(), plan, wanted, plan.partitions or target.partitions)
    records = rows.count()
    if wanted.rate is not None:
        at_once = min(plan.tasks, spark.sparkContext.defaultParallelism)
        rows = rows.mapInArrow(_throttled(wanted.rate, at_once), rows.schema)
    options = {
        "redis": connection.redis,
        "namespace": connection.namespace,
        "topic": topic,
        "writeId": name,
        "includeTimestamp": str(wanted.keep_timestamps).lower(),
    }
    rows.write.format("korvet").options(**options).mode("append").save()
    return Replayed(name, records, round(time.monotonic() - began, 3), False)


def _name(place: Place, target: Topic, wanted: Wanted) -> str:
    told = msgspec.structs.replace(wanted, rate=None)
    text = "\n".join((str(place), target.id, msgspec.json.encode(told).decode()))
    return "replay-" + hashlib.sha256(text.encode()).hexdigest()[:24]


def _rows(frame: Any, plan: Plan, wanted: Wanted, partitions: int) -> Any:
    from pyspark.sql import functions as f

    frame = frame.where(within(plan.archived))
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
        # Records stay in their partition where there is one of that number.
        fits = f.when(f.col("partition") < partitions, f.col("partition"))
        return ordered.withColumn("partition", fits).select(*COLUMNS)
    except Exception as error:
        raise PipelineError(f"Which rows? {said(error)}") from error


def _throttled(rate: int, at_once: int) -> Any:
    """Lets about `rate` rows a second through, so many tasks running at once."""
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
