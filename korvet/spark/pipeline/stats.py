"""`stats`: count the content of topics with Spark in a few passes."""

from collections.abc import Sequence
from typing import Any

import msgspec
from pyspark.sql import functions as f

from korvet.spark.metadata import MetadataClient
from korvet.spark.options import Connection, Selection
from korvet.spark.pipeline.errors import PipelineError

QUANTILES = (0.0, 0.5, 0.9, 0.99, 0.999, 1.0)
BARS = 60
TOP = 10


class Quantiles(msgspec.Struct, frozen=True):
    """Minimum, median, 90th, 99th and 99.9th percentile, maximum; empty without values."""

    values: tuple[float, ...]


class Part(msgspec.Struct, frozen=True):
    """Totals of one partition."""

    partition: int
    records: int
    bytes: int


class Point(msgspec.Struct, frozen=True):
    """Records and bytes of one time interval."""

    at_ms: int
    records: int
    bytes: int


class Key(msgspec.Struct, frozen=True):
    """A frequent key."""

    key: str
    records: int


class TopicStats(msgspec.Struct, frozen=True):
    """Statistics of one topic."""

    topic: str
    records: int
    bytes: int
    first_ms: int
    last_ms: int
    step_ms: int
    parts: tuple[Part, ...]
    over_time: tuple[Point, ...]
    without_key: int
    tombstones: int
    keys: int
    """Number of distinct keys, within about 2 %."""
    top: tuple[Key, ...]
    sizes: Quantiles
    latency_ms: Quantiles | None
    """Append time minus timestamp, if offsets contain the append time (offset.mode `time`)."""


def stats(spark: Any, connection: Connection, topics: Sequence[str]) -> list[TopicStats]:
    """Return the statistics of the topics as they are now."""
    with MetadataClient(connection) as metadata:
        parts = metadata.logs(Selection(topics=tuple(topics)))
    modes = {part.topic: (part.mode, part.bits) for part in parts}
    return [_topic_stats(spark, connection, topic, *modes[topic]) for topic in topics]


def _topic_stats(
    spark: Any, connection: Connection, topic: str, mode: str, bits: int
) -> TopicStats:
    frame = (
        spark.read.format("korvet")
        .options(redis=connection.redis, namespace=connection.namespace, subscribe=topic)
        .option("columns", "key,value,partition,offset,timestamp")
        .load()
    )
    size = f.coalesce(f.length("key"), f.lit(0)) + f.coalesce(f.length("value"), f.lit(0))
    ms = f.unix_millis("timestamp")
    rows = frame.select(
        "partition",
        "key",
        f.col("value").isNull().alias("tombstone"),
        size.alias("size"),
        ms.alias("ms"),
        (f.shiftright("offset", bits) - ms).alias("latency"),
    )
    quantiles = [f.lit(q) for q in QUANTILES]
    whole = rows.agg(
        f.count(f.lit(1)).alias("records"),
        f.sum("size").alias("bytes"),
        f.min("ms").alias("first"),
        f.max("ms").alias("last"),
        f.sum(f.col("key").isNull().cast("bigint")).alias("without"),
        f.sum(f.col("tombstone").cast("bigint")).alias("tombstones"),
        f.approx_count_distinct("key", 0.02).alias("keys"),
        f.percentile_approx("size", f.array(*quantiles), 1000).alias("sizes"),
        f.percentile_approx("latency", f.array(*quantiles), 1000).alias("latency"),
    ).first()
    if whole is None:
        raise PipelineError(f"Topic {topic!r} could not be read.")
    first, last = whole["first"] or 0, whole["last"] or 0
    step = _step(last - first)
    grouped = (
        rows.groupBy("partition", (f.floor(f.col("ms") / step) * step).alias("at"))
        .agg(f.count(f.lit(1)).alias("records"), f.sum("size").alias("bytes"))
        .collect()
    )
    top = (
        rows.where(f.col("key").isNotNull())
        .groupBy("key")
        .count()
        .orderBy(f.desc("count"), "key")
        .limit(TOP)
        .collect()
    )
    return TopicStats(
        topic=topic,
        records=whole["records"],
        bytes=whole["bytes"] or 0,
        first_ms=first,
        last_ms=last,
        step_ms=step,
        parts=tuple(Part(*row) for row in _sums(grouped, "partition")),
        over_time=tuple(Point(*row) for row in _sums(grouped, "at")),
        without_key=whole["without"] or 0,
        tombstones=whole["tombstones"] or 0,
        keys=whole["keys"],
        top=tuple(Key(_shown(row["key"]), row["count"]) for row in top),
        sizes=Quantiles(tuple(whole["sizes"] or ())),
        latency_ms=Quantiles(tuple(whole["latency"] or ())) if mode == "time" else None,
    )


def _sums(grouped: Sequence[Any], column: str) -> list[tuple[int, int, int]]:
    """Return value, records and bytes of each value of the column, sorted."""
    found: dict[int, tuple[int, int]] = {}
    for row in grouped:
        records, size = found.get(row[column], (0, 0))
        found[row[column]] = (records + row["records"], size + row["bytes"])
    return [(value, *found[value]) for value in sorted(found)]


def _step(span_ms: int) -> int:
    """Return a round interval that divides the time span into about BARS parts."""
    wanted = max(1, span_ms // BARS)
    nice: list[int] = [m * unit for unit in (1, 10, 100) for m in (1, 2, 5)]
    nice += [s * 1000 for s in (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600)]
    nice += [d * 86_400_000 for d in (1, 2, 7, 14, 30, 90, 365)]
    return next((each for each in nice if each >= wanted), nice[-1])


def _shown(key: bytes | bytearray) -> str:
    raw = bytes(key)
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return "0x" + raw.hex()[:64]
    return text[:64] if text.isprintable() else "0x" + raw.hex()[:64]
