"""Check the schema of a DataFrame before it is written."""

from typing import Any

from korvet.spark.errors import InvalidDataFrame
from korvet.spark.options import WriteOptions

_BYTES = ("string", "binary")
_WRITE_COLUMNS = ("key", "value", "topic", "partition", "headers", "timestamp")
_HEADERS = "array<struct<key:string,value:binary>>"


def check_schema(schema: Any, options: WriteOptions) -> None:
    """Raise InvalidDataFrame if a column is missing, ambiguous or of a wrong type."""
    types = {field.name.lower(): field.dataType.simpleString() for field in schema.fields}
    names = [field.name.lower() for field in schema.fields]
    for name in _WRITE_COLUMNS:
        if names.count(name) > 1:
            raise InvalidDataFrame(
                f"There are {names.count(name)} columns {name!r}; one is expected."
            )
    if "value" not in types:
        raise InvalidDataFrame(
            f"A column 'value' is needed; there are {', '.join(types) or 'none'}."
        )
    for name in ("key", "value"):
        _expect_type(types, name, _BYTES)
    if options.topic is None:
        _expect_type(types, "topic", ("string",))
    _expect_type(types, "partition", ("int",))
    _expect_type(types, "headers", (_HEADERS,))
    if options.timestamps:
        if "timestamp" not in types:
            raise InvalidDataFrame("includeTimestamp needs a column 'timestamp'.")
        _expect_type(types, "timestamp", ("timestamp",))
    if options.topic is None and "topic" not in types:
        raise InvalidDataFrame(
            "No topic: set option 'topic' or add a column 'topic'. For a catalog's table use "
            "INSERT INTO t WITH (topic = 'orders'): Spark does not pass its options to the sink."
        )


def _expect_type(types: dict[str, str], name: str, wanted: tuple[str, ...]) -> None:
    found = types.get(name)
    if found is not None and found != "void" and found not in wanted:
        raise InvalidDataFrame(f"Column {name!r} must be {' or '.join(wanted)}, not {found}.")
