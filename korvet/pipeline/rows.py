"""The columns of a table, and the hash by which rows are compared."""

from typing import Any

COLUMNS = ("topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers")
DDL = (
    "topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT, "
    "key BINARY, value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
LOW = 0xFFFFFFFF


def dated(frame: Any) -> Any:
    """The rows in the table's order of columns, with their day (UTC), by which it is parted."""
    from pyspark.sql import functions as f

    more = [name for name in frame.columns if name not in COLUMNS]
    return frame.select(*COLUMNS, f.to_date("timestamp").alias("date"), *more)


def row_hash() -> Any:
    """A hash of all that a record is. Nulls are told apart from absence of bytes."""
    from pyspark.sql import functions as f

    flags = f.isnull("key").cast("int") * 2 + f.isnull("value").cast("int")
    return f.xxhash64(
        "topic", "partition", "offset", f.unix_micros("timestamp"), flags, "key", "value", "headers"
    )


def sums(hashed: Any) -> tuple[Any, Any]:
    """The two sums of which `checksum` makes one: 64 bits of hash would overflow."""
    from pyspark.sql import functions as f

    low = f.sum(hashed.bitwiseAND(f.lit(LOW)))
    high = f.sum(f.shiftrightunsigned(hashed, 32))
    return low, high


def checksum(low: int | None, high: int | None) -> int:
    """The sum of all hashes, modulo 2**64."""
    return ((low or 0) + ((high or 0) << 32)) % 2**64
