"""The columns of a DataFrame over topics: those of Spark's Kafka source, same names, same types."""

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
    """The schema of these columns as Spark's DDL. What `timestamp` stands for there is a setting
    of the session (spark.sql.timestampType); `timestamp_ltz` is always the type that we mean."""
    said = {**TYPES, "timestamp": "timestamp_ltz"}
    return ", ".join(f"{name} {said[name]}" for name in names)


def unknown(names: Sequence[str]) -> list[str]:
    """Those of the names that are no column of ours."""
    return [name for name in names if name not in TYPES]
