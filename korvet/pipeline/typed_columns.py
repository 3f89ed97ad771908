"""Add typed columns for the value: text, fields of JSON, fields of Avro.

Rules
- The raw key and value are always kept, so no content is lost.
- A row whose value does not fit has the reason in `_corrupt`.
- Columns are only added to a table: none is dropped or changes its type.
"""

from typing import Any

from pyspark.sql import functions as f
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import (
    ArrayType,
    StringType,
    StructField,
    StructType,
    _parse_datatype_json_string,
)

from korvet.pipeline.errors import PipelineError
from korvet.pipeline.maven_packages import AVRO
from korvet.pipeline.spark_session import error_text

MODES = ("bytes", "string", "json", "avro")
PREFIX = "value_"
_UNFIT = set(" ,;{}()\n\t=.`")


def check_mode(mode: str, avro_schema: str | None) -> None:
    """Raise PipelineError unless mode and schema fit together."""
    if mode not in MODES:
        raise PipelineError(f"--value must be one of {', '.join(MODES)}, not {mode!r}.")
    if (mode == "avro") != (avro_schema is not None):
        raise PipelineError("--value avro and --avro-schema FILE belong together.")


class TypedColumns:
    """Adds the typed columns of one mode."""

    def __init__(self, spark: Any, mode: str, avro_schema: str | None = None) -> None:
        check_mode(mode, avro_schema)
        self._spark = spark
        self._mode = mode
        self._avro_schema = avro_schema

    def typed(self, frame: Any, known: str) -> tuple[Any, str]:
        """Return the frame with its typed columns, and the schema of these as JSON."""
        if self._mode == "json":
            return self._json(frame, known)
        if self._mode == "bytes":
            return frame, known
        typed = _text(frame) if self._mode == "string" else self._avro(frame)
        return typed, _check_kept_types(known, typed.schema)

    def _json(self, frame: Any, known: str) -> tuple[Any, str]:
        text = f.col("value").cast("string")
        before = _parse_datatype_json_string(known) if known else StructType([])
        schema = _merge_schemas(
            before, _supported_fields(self._inferred(frame.select(text.alias("value"))))
        )
        marked = StructType([*schema.fields, StructField("_bad", StringType())])
        parsed = f.from_json(text, marked, {"columnNameOfCorruptRecord": "_bad"})
        variant = f.try_parse_json(text)
        wrong = (
            f.when(f.col("value").isNull(), None)
            .when(variant.isNull(), "no JSON")
            .when(~f.schema_of_variant(variant).startswith("OBJECT"), "no JSON object")
            .when(f.col("_parsed._bad").isNotNull(), "a field has another type than its column")
        )
        more = [f.col(f"_parsed.`{each.name}`").alias(PREFIX + each.name) for each in schema]
        typed = frame.withColumn("_parsed", parsed).select(
            *frame.columns, *more, wrong.alias("_corrupt")
        )
        return typed, schema.json()

    def _inferred(self, texts: Any) -> Any:
        """Infer the schema of all values that are JSON objects."""
        encoder = self._spark._jvm.org.apache.spark.sql.Encoders.STRING()
        reader = self._spark._jsparkSession.read()
        reader = reader.option("dropFieldIfAllNull", True)
        reader = reader.option("columnNameOfCorruptRecord", "_bad")
        found: Any = _parse_datatype_json_string(
            reader.json(getattr(texts._jdf, "as")(encoder)).schema().json()
        )
        return StructType([each for each in found.fields if each.name != "_bad"])

    def _avro(self, frame: Any) -> Any:
        assert self._avro_schema is not None
        try:
            parsed = from_avro(f.col("value"), self._avro_schema, {"mode": "PERMISSIVE"})
            wide = frame.withColumn("_parsed", parsed)
            names = wide.schema["_parsed"].dataType.names
        except Exception as error:
            raise PipelineError(
                f"--value avro: {error_text(error)} (if Spark could not download {AVRO}, see above)"
            ) from error
        absent = f.coalesce(*(f.col(f"_parsed.`{name}`").cast("string") for name in names)).isNull()
        wrong = f.when(f.col("value").isNotNull() & absent, "does not fit the Avro schema")
        more = [f.col(f"_parsed.`{name}`").alias(PREFIX + name) for name in names]
        return wide.select(*frame.columns, *more, wrong.alias("_corrupt"))


def _check_kept_types(known: str, schema: Any) -> str:
    """Return the schema of old and new typed columns; raise PipelineError if a type changed."""
    before: Any = _parse_datatype_json_string(known) if known else StructType([])
    fresh = StructType(
        [
            StructField(each.name.removeprefix(PREFIX), each.dataType)
            for each in schema.fields
            if each.name.startswith(PREFIX)
        ]
    )
    whole = _merge_schemas(before, fresh)
    clash = _find_type_clash(fresh, whole)
    if clash:
        raise PipelineError(
            f"Column {PREFIX}{clash} would get another type. Columns of a table keep their types: "
            "archive into another table."
        )
    return str(whole.json())


def _find_type_clash(fresh: Any, whole: Any) -> str:
    """Return the first field that has another type in the whole schema, else an empty string."""
    if isinstance(fresh, ArrayType) and isinstance(whole, ArrayType):
        return _find_type_clash(fresh.elementType, whole.elementType) and "[]"
    if not (isinstance(fresh, StructType) and isinstance(whole, StructType)):
        return "" if fresh.simpleString() == whole.simpleString() else "?"
    types = {each.name.lower(): each.dataType for each in whole.fields}
    return next(
        (
            each.name
            for each in fresh.fields
            if _find_type_clash(each.dataType, types[each.name.lower()])
        ),
        "",
    )


def _text(frame: Any) -> Any:
    text = f.try_validate_utf8(f.col("value").cast("string"))
    return frame.withColumn("value_string", text).withColumn(
        "_corrupt", f.when(f.col("value").isNotNull() & f.col("value_string").isNull(), "not UTF-8")
    )


def _supported_fields(schema: Any) -> Any:
    """Return the fields that every table format accepts; of names that differ in case the first."""
    if isinstance(schema, ArrayType):
        return ArrayType(_supported_fields(schema.elementType))
    if not isinstance(schema, StructType):
        return schema
    found: dict[str, Any] = {}
    for each in schema.fields:
        type_ = _supported_fields(each.dataType)
        if each.name and not _UNFIT.intersection(each.name) and not _is_empty(type_):
            found.setdefault(each.name.lower(), StructField(each.name, type_))
    return StructType(list(found.values()))


def _is_empty(type_: Any) -> bool:
    """Return whether the type is an object without fields, or a list of these: never accepted."""
    while isinstance(type_, ArrayType):
        type_ = type_.elementType
    return isinstance(type_, StructType) and not type_.fields


def _merge_schemas(before: Any, fresh: Any) -> Any:
    """Return the old schema with new fields appended; existing types are kept."""
    if isinstance(before, ArrayType) and isinstance(fresh, ArrayType):
        return ArrayType(_merge_schemas(before.elementType, fresh.elementType))
    if not (isinstance(before, StructType) and isinstance(fresh, StructType)):
        return before
    new = {each.name.lower(): each for each in fresh.fields}
    fields = [
        StructField(each.name, _merge_schemas(each.dataType, new.pop(each.name.lower()).dataType))
        if each.name.lower() in new
        else each
        for each in before.fields
    ]
    return StructType([*fields, *new.values()])
