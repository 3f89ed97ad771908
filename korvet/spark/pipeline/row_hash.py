"""The columns of an archive table, and the hash by which rows are compared."""

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import or_
from typing import Any

from pyspark.sql import functions as f

from korvet.spark.pipeline.commit_metadata import Span

COLUMNS = ("topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers")
DDL = (
    "topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT, "
    "key BINARY, value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
BITS = 22
"""Bits of each hash that are summed separately: 2**41 rows do not overflow 64 bits."""


def with_date(frame: Any) -> Any:
    """Return the rows with the table's columns and the UTC date that partitions the table."""
    more = [name for name in frame.columns if name not in COLUMNS]
    return frame.select(*COLUMNS, f.to_date("timestamp").alias("date"), *more)


def row_hash(untimed: Sequence[str] = ()) -> Any:
    """Return a hash of all fields of a record; nulls differ from empty values.

    Timestamps of records in the `untimed` topics are left out.
    """
    moment = f.unix_micros("timestamp")
    if untimed:
        moment = f.when(~f.col("topic").isin(*untimed), moment)
    flags = f.isnull("key").cast("int") * 2 + f.isnull("value").cast("int")
    # xxhash64 skips nulls within headers.
    nulls = f.transform("headers", lambda header: f.isnull(header["value"]))
    fields = ("topic", "partition", "offset", moment, "timestampType", flags, "key", "value")
    return f.xxhash64(*fields, "headers", nulls)


def within_spans(spans: Iterable[Span]) -> Any:
    """Return whether a row is in one of the spans."""
    found = [
        (f.col("topic") == span.topic)
        & (f.col("partition") == span.partition)
        & (f.col("offset") >= span.start)
        & (f.col("offset") < span.end)
        for span in spans
    ]
    # Combine in pairs: a linear chain of 1000 conditions is too deep for Spark's parser.
    while len(found) > 1:
        found = [reduce(or_, found[n : n + 2]) for n in range(0, len(found), 2)]
    return found[0] if found else f.lit(False)


def partial_sums(hashed: Any) -> list[Any]:
    """Return sums of parts of the hash, which do not overflow; see `checksum`."""
    mask = f.lit((1 << BITS) - 1)
    parts = [f.shiftrightunsigned(hashed, low).bitwiseAND(mask) for low in range(0, 64, BITS)]
    return [f.sum(part) for part in parts]


def checksum(*parts: int | None) -> int:
    """Return the sum of all hashes modulo 2**64 from their partial sums."""
    return sum((part or 0) << n * BITS for n, part in enumerate(parts)) % 2**64
