"""Sums of the log's records and of a table's rows, by partition and piece."""

from collections.abc import Sequence
from typing import Any

import msgspec
from pyspark.sql import functions as f

from korvet.spark.options import Connection
from korvet.spark.partitions import OffsetRange, PartitionLog
from korvet.spark.pipeline.commit_metadata import CommitMetadata, Span
from korvet.spark.pipeline.next_commit import read_frame
from korvet.spark.pipeline.row_hash import checksum, partial_sums, row_hash, within_spans

MAX_PIECES = 64
"""Pieces per partition."""


class RowSum(msgspec.Struct, frozen=True):
    """Row count, checksum and offset range of some rows of one partition."""

    rows: int = 0
    checksum: int = 0
    first: int | None = None
    last: int | None = None

    def __add__(self, other: "RowSum") -> "RowSum":
        firsts = [each for each in (self.first, other.first) if each is not None]
        lasts = [each for each in (self.last, other.last) if each is not None]
        return RowSum(
            self.rows + other.rows,
            (self.checksum + other.checksum) % 2**64,
            min(firsts, default=None),
            max(lasts, default=None),
        )


class ComparedRange(msgspec.Struct, frozen=True):
    part: PartitionLog
    start: int
    """Log start offset; `first` is the first record's offset, or `next`."""
    first: int
    next: int
    span: Span | None
    begun: bool
    """Whether the table has a partition of the topic."""
    compacted: bool
    """Whether the log drops records with newer ones of the same key; the table keeps them."""
    untimed: bool
    """Whether there may be records with the time of reading as their timestamp."""

    @property
    def low(self) -> int:
        """Return the start of the compared range."""
        return self.first if self.span is None else max(self.first, self.span.start)

    @property
    def high(self) -> int:
        """Return the end of the compared range."""
        return self.low if self.span is None else max(self.low, min(self.next, self.span.end))

    @property
    def step(self) -> int:
        """Return the number of offsets in a piece."""
        return max(1, -(-(self.high - self.low) // MAX_PIECES))

    def whole(self, first: int) -> int:
        """Return the first piece that starts at or after offset `first`."""
        return max(0, -(-(first - self.low) // self.step))


def _untimed_topics(sides: Sequence[ComparedRange]) -> list[str]:
    return sorted({each.part.topic for each in sides if each.untimed})


Key = tuple[str, int]


def sums_of_log(
    spark: Any, connection: Connection, sides: Sequence[ComparedRange]
) -> dict[Key, dict[int, RowSum]]:
    """Return the sums of each piece of the log, by partition."""
    ranges = [OffsetRange(each.part, each.low, each.high) for each in sides if each.low < each.high]
    if not ranges:
        return {}
    cores = str(spark.sparkContext.defaultParallelism)
    frame = read_frame(spark, connection, ranges, minPartitions=cores, failOnDataLoss="false")
    rows = (
        frame.groupBy("topic", "partition", _piece_number(sides).alias("piece"))
        .agg(f.count(f.lit(1)), *_edges(), *partial_sums(row_hash(_untimed_topics(sides))))
        .collect()
    )
    found: dict[Key, dict[int, RowSum]] = {}
    for topic, number, piece, count, first, last, *hashes in rows:
        if piece is not None:
            sum_ = RowSum(count, checksum(*hashes), first, last)
            found.setdefault((topic, number), {})[piece] = sum_
    return found


def _piece_number(sides: Sequence[ComparedRange]) -> Any:
    """Return the piece number of a row, or null outside of the compared ranges."""
    found = [f.lit(None).cast("bigint")]
    for each in sides:
        if each.low < each.high:
            span = Span(each.part.topic, each.part.partition, "", each.low, each.high)
            number = f.expr(f"(offset - {each.low}) div {each.step}")
            found.append(f.when(within_spans([span]), number))
    return f.coalesce(*found)


class TableSums(msgspec.Struct, frozen=True):
    pieces: dict[int, RowSum]
    """Sums to compare with the log. The other sums are to compare with the commits."""
    whole: RowSum
    """Rows that the state covers."""
    beyond: RowSum
    """Rows that it does not cover."""
    distinct: int


def sums_of_table(
    frame: Any, sides: Sequence[ComparedRange], state: CommitMetadata
) -> dict[Key, TableSums]:
    """Return the sums of each piece, of all rows, and the number of offsets, by partition."""
    # Group by offset first, to count duplicates.
    hashes = [*partial_sums(f.col("kept")), *partial_sums(f.col("exact"))]
    names = [f"hash{n}" for n in range(len(hashes))]
    inner = (
        frame.select(
            "topic",
            "partition",
            "offset",
            row_hash().alias("kept"),
            row_hash(_untimed_topics(sides)).alias("exact"),
        )
        .groupBy("topic", "partition", "offset")
        .agg(
            f.count(f.lit(1)).alias("n"),
            *(each.alias(name) for each, name in zip(hashes, names, strict=True)),
        )
        .withColumn("known", within_spans(state.archived))
        .withColumn("piece", _piece_number(sides))
    )
    rows = (
        inner.groupBy("topic", "partition", "known", "piece")
        .agg(f.count(f.lit(1)), f.sum("n"), *_edges(), *(f.sum(name) for name in names))
        .collect()
    )
    found: dict[Key, TableSums] = {}
    for topic, number, known, piece, distinct, count, first, last, *parts in rows:
        before, half = found.get((topic, number), NO_SUMS), len(parts) // 2
        kept = RowSum(count, checksum(*parts[:half]), first, last)
        if not known:
            after = msgspec.structs.replace(before, beyond=before.beyond + kept)
        else:
            exact = RowSum(count, checksum(*parts[half:]), first, last)
            pieces = before.pieces if piece is None else {**before.pieces, piece: exact}
            after = TableSums(
                pieces, before.whole + kept, before.beyond, before.distinct + distinct
            )
        found[topic, number] = after
    return found


def _edges() -> tuple[Any, Any]:
    return f.min("offset"), f.max("offset")


NO_SUMS = TableSums({}, RowSum(), RowSum(), 0)
