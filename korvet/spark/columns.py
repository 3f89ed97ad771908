"""The DataFrame columns of a topic: names and types of Spark's Kafka source."""

from collections.abc import Sequence

TYPES = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}
ALWAYS = tuple(name for name in TYPES if name != "headers")
CREATE_TIME, APPEND_TIME = 0, 1


def ddl(names: Sequence[str]) -> str:
    """Return the columns as Spark DDL.

    `timestamp` depends on the session setting spark.sql.timestampType: use `timestamp_ltz`.
    """
    types = {**TYPES, "timestamp": "timestamp_ltz"}
    return ", ".join(f"{name} {types[name]}" for name in names)
