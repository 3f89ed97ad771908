"""Schemas: Arrow's of what is read, as this PySpark wants it, and Spark's of what is written."""

import inspect
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from korvet.spark import columns
from korvet.spark.errors import BadFrame
from korvet.spark.options import WriteOptions

_BYTES = ("string", "binary")
_WRITTEN = ("key", "value", "topic", "partition", "headers", "timestamp")
_HEADERS = "array<struct<key:string,value:binary>>"


@lru_cache(maxsize=64)
def arrow_schema(names: Sequence[str]) -> Any:
    """The Arrow schema of these columns. PySpark 4.3 compares it field by field with its own."""
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import _parse_datatype_json_string

    to_arrow: Any = to_arrow_schema
    struct = _parse_datatype_json_string(spark_json(names))
    if "timezone" in inspect.signature(to_arrow_schema).parameters:
        return to_arrow(struct, timezone="UTC")
    return to_arrow(struct)


def spark_json(names: Sequence[str]) -> str:
    """The schema as Spark's own JSON: parsing it needs no session, where DDL would."""
    import json

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


def check_schema(schema: Any, options: WriteOptions) -> None:
    """Nothing, or BadFrame naming the column that cannot be written."""
    types = {field.name.lower(): field.dataType.simpleString() for field in schema.fields}
    names = [field.name.lower() for field in schema.fields]
    for name in _WRITTEN:
        if names.count(name) > 1:
            raise BadFrame(f"There are {names.count(name)} columns {name!r}: which is meant?")
    if "value" not in types:
        raise BadFrame(f"A column 'value' is needed; there are {', '.join(types) or 'none'}.")
    for name in ("key", "value"):
        _expect(types, name, _BYTES)
    if options.topic is None:
        _expect(types, "topic", ("string",))
    _expect(types, "partition", ("int",))
    _expect(types, "headers", (_HEADERS,))
    if options.timestamps and "timestamp" not in types:
        raise BadFrame("includeTimestamp needs a column 'timestamp'.")
    if options.timestamps:
        _expect(types, "timestamp", ("timestamp",))
    if options.topic is None and "topic" not in types:
        raise BadFrame(
            "Which topic? Give option 'topic' or a column 'topic'; to a catalog's table "
            "INSERT INTO t WITH (topic = 'orders'), as Spark tells a Python sink no options of it."
        )


def _expect(types: dict[str, str], name: str, wanted: tuple[str, ...]) -> None:
    found = types.get(name)
    if found is not None and found != "void" and found not in wanted:
        raise BadFrame(f"Column {name!r} must be {' or '.join(wanted)}, not {found}.")
