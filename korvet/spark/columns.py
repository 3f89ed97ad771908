"""The DataFrame columns of a topic: names and types of Spark's Kafka source, schemas in Arrow."""

import inspect
import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from korvet.spark import columns

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
OF_TABLE = ("key", "value", "topic", "partition")
"""The columns of option `table`."""
CREATE_TIME, APPEND_TIME = 0, 1


def ddl(names: Sequence[str]) -> str:
    """Return the columns as Spark DDL.

    `timestamp` depends on the session setting spark.sql.timestampType: use `timestamp_ltz`.
    """
    types = {**TYPES, "timestamp": "timestamp_ltz"}
    return ", ".join(f"{name} {types[name]}" for name in names)


@lru_cache(maxsize=64)
def arrow_schema(names: Sequence[str]) -> Any:
    """Return the Arrow schema of the columns. PySpark 4.3 compares it with its own by field."""
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import _parse_datatype_json_string

    to_arrow: Any = to_arrow_schema
    struct = _parse_datatype_json_string(spark_json(names))
    if "timezone" in inspect.signature(to_arrow_schema).parameters:
        return to_arrow(struct, timezone="UTC")
    return to_arrow(struct)


def spark_json(names: Sequence[str]) -> str:
    """Return the schema as Spark's JSON: unlike DDL it can be parsed without a session."""
    return json.dumps(
        {"type": "struct", "fields": [_field(name, _json_type(name)) for name in names]}
    )


def _field(name: str, type_: Any) -> dict[str, Any]:
    return {"name": name, "type": type_, "nullable": True, "metadata": {}}


def _json_type(name: str) -> Any:
    if name == "headers":
        pair = {"type": "struct", "fields": [_field("key", "string"), _field("value", "binary")]}
        return {"type": "array", "elementType": pair, "containsNull": True}
    return {"int": "integer", "bigint": "long"}.get(columns.TYPES[name], columns.TYPES[name])
