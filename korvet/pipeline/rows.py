"""The columns of a table, and the hash by which rows are compared."""

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import or_
from typing import Any

from korvet.pipeline.ranges import Span

COLUMNS = ("topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers")
DDL = (
    "topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT, "
    "key BINARY, value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
BITS = 22
"""So many bits of each hash are added up together: 2**41 rows do not overflow 64."""


def dated(frame: Any) -> Any:
    """The rows in the table's order of columns, with their day (UTC), by which it is parted."""
    from pyspark.sql import functions as f

    more = [name for name in frame.columns if name not in COLUMNS]
    return frame.select(*COLUMNS, f.to_date("timestamp").alias("date"), *more)


def row_hash() -> Any:
    """A hash of all that a record is. Nulls are told apart from absence of bytes."""
    from pyspark.sql import functions as f

    return _hashed(f.unix_micros("timestamp"))


def exact_hash(untimed: Sequence[str] = ()) -> Any:
    """What `row_hash`, whose sums tables keep, does not tell apart: the type of the timestamp, and
    a header without a value from what is a name or a value beside it. In these topics `untimed`
    records have another time whenever they are read, and times do not count."""
    from pyspark.sql import functions as f

    valueless = f.transform("headers", lambda header: f.isnull(header["value"]))
    moment = f.unix_micros("timestamp")
    if untimed:
        moment = f.when(~f.col("topic").isin(*untimed), moment)
    return f.xxhash64(_hashed(moment), "timestampType", valueless)


def _hashed(moment: Any) -> Any:
    from pyspark.sql import functions as f

    flags = f.isnull("key").cast("int") * 2 + f.isnull("value").cast("int")
    return f.xxhash64("topic", "partition", "offset", moment, flags, "key", "value", "headers")


def within(spans: Iterable[Span]) -> Any:
    """Whether a row lies in one of the spans."""
    from pyspark.sql import functions as f

    found = [
        (f.col("topic") == span.topic)
        & (f.col("partition") == span.partition)
        & (f.col("offset") >= span.start)
        & (f.col("offset") < span.end)
        for span in spans
    ]
    # In pairs: a thousand partitions one behind another would be too deep for Spark.
    while len(found) > 1:
        found = [reduce(or_, found[n : n + 2]) for n in range(0, len(found), 2)]
    return found[0] if found else f.lit(False)


def sums(hashed: Any) -> list[Any]:
    """The sums of which `checksum` makes one: 64 bits of hash would overflow."""
    from pyspark.sql import functions as f

    mask = f.lit((1 << BITS) - 1)
    parts = [f.shiftrightunsigned(hashed, low).bitwiseAND(mask) for low in range(0, 64, BITS)]
    return [f.sum(part) for part in parts]


def checksum(*parts: int | None) -> int:
    """The sum of all hashes, modulo 2**64."""
    return sum((part or 0) << n * BITS for n, part in enumerate(parts)) % 2**64
