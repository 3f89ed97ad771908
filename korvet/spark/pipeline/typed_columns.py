"""Add typed columns for the value: text, fields of JSON, fields of Avro.

Rules
- The raw key and value are always kept, so no content is lost.
- A row whose value does not fit has the reason in `_corrupt`.
- Columns are only added to a table: none is dropped. A type changes only to a wider one, if the
  table's format can widen it.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Any

from pyspark.sql import functions as f
from pyspark.sql.types import (
    ArrayType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StructField,
    StructType,
    _parse_datatype_json_string,
)

from korvet.spark.pipeline import avro_columns, json_columns
from korvet.spark.pipeline.avro_columns import AvroById
from korvet.spark.pipeline.errors import PipelineError
from korvet.spark.pipeline.json_columns import fold
from korvet.spark.pipeline.spark_session import limit_avro_lengths

MODES = ("bytes", "string", "json", "avro")
PREFIX = "value_"
_UNFIT = set(" ,;{}()\n\t=.`")
_PROMOTED = {(IntegerType, LongType), (FloatType, DoubleType)}


def check_mode(mode: str, avro_schema: str | AvroById | None) -> None:
    """Raise PipelineError unless mode and schema fit together."""
    if mode not in MODES:
        raise PipelineError(f"--value must be one of {', '.join(MODES)}, not {mode!r}.")
    if (mode == "avro") != (avro_schema is not None):
        raise PipelineError(
            "--value avro and --registry URL or --avro-schema FILE belong together."
        )


@dataclass(eq=False, repr=False)
class TypedColumns:
    """Adds the typed columns of one mode."""

    spark: Any
    mode: str
    avro_schema: str | AvroById | None = None
    _: KW_ONLY
    widens: bool = False

    def __post_init__(self) -> None:
        check_mode(self.mode, self.avro_schema)
        if self.mode == "avro":
            limit_avro_lengths(self.spark)

    def typed(self, frame: Any, known: str) -> tuple[Any, str]:
        """Return the frame with its typed columns, and the schema of these as JSON."""
        if self.mode == "json":
            return self._json(frame, known)
        if self.mode == "bytes":
            return frame, known
        if self.mode == "avro":
            return self._avro(frame, known)
        typed = _text(frame)
        fresh = StructType([StructField("string", typed.schema["value_string"].dataType)])
        return typed, _check_kept_types(known, fresh, self.widens)

    def _json(self, frame: Any, known: str) -> tuple[Any, str]:
        fresh = _supported_fields(json_columns.infer(self.spark, frame))
        schema = _merge_schemas(_parsed_schema(known), fresh, self.widens)
        wide, parsed, wrong = json_columns.parse(frame, schema)
        more = [parsed[each.name].alias(PREFIX + each.name) for each in schema]
        typed = wide.select(*frame.columns, *more, wrong.alias("_corrupt"))
        return typed, schema.json()

    def _avro(self, frame: Any, known: str) -> tuple[Any, str]:
        assert self.avro_schema is not None
        wide, cases, absent = avro_columns.decode(frame, self.avro_schema)
        schema = _parsed_schema(known)
        for each in cases:
            if each.type is not None:
                schema = _merge_schemas(schema, _supported_fields(each.type), self.widens)
        if isinstance(self.avro_schema, str):
            _check_kept_types(known, _supported_fields(cases[0].type), self.widens)
        wrong = avro_columns.reason_of(cases, absent)
        more, clashes = [], []
        for field in schema:
            values, clash = _field_of(field, cases)
            more.append(values.alias(PREFIX + field.name))
            clashes.append(clash)
        wrong = f.coalesce(wrong, *clashes)
        return wide.select(*frame.columns, *more, wrong.alias("_corrupt")), schema.json()


def _parsed_schema(text: str) -> Any:
    return _parse_datatype_json_string(text) if text else StructType([])


def _field_of(field: Any, cases: Any) -> tuple[Any, Any]:
    """Return a table's column from the values of all schemas, and why a value is not in it."""
    values, clash = [f.lit(None).cast(field.dataType)], [f.lit(None).cast("string")]
    for each in cases:
        mine = {} if each.type is None else {fold(one.name): one for one in each.type}
        fresh = mine.get(fold(field.name))
        if fresh is None:
            continue
        value = each.column[fresh.name]
        whole = each.matches & each.is_whole
        values.append(f.when(whole, _fit(value, fresh.dataType, field.dataType)))
        if _find_type_clash(fresh.dataType, field.dataType):
            reason = f"field {fresh.name} has another type than its column"
            clash.append(f.when(whole & value.isNotNull(), reason))
    return f.coalesce(*values[::-1]), f.coalesce(*clash)


def _fit(value: Any, fresh: Any, whole: Any) -> Any:
    """Return the value as the type of its column; NULL in place of what has another type."""
    if fresh.simpleString() == whole.simpleString():
        return value
    if isinstance(fresh, StructType) and isinstance(whole, StructType):
        types = {fold(each.name): each for each in fresh}
        fields = [
            (
                _fit(value[mine.name], mine.dataType, each.dataType)
                if (mine := types.get(fold(each.name)))
                else f.lit(None).cast(each.dataType)
            ).alias(each.name)
            for each in whole
        ]
        return f.when(value.isNotNull(), f.struct(*fields))
    if isinstance(fresh, ArrayType) and isinstance(whole, ArrayType):
        return f.transform(value, lambda each: _fit(each, fresh.elementType, whole.elementType))
    if _wider(fresh, whole) is not None and _wider(fresh, whole) == whole:
        return value.cast(whole)
    return f.lit(None).cast(whole)


def _check_kept_types(known: str, fresh: Any, widens: bool) -> str:
    """Return the schema of old and new typed columns; raise PipelineError if a type changed."""
    whole = _merge_schemas(_parsed_schema(known), fresh, widens)
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
        same = fresh.simpleString() == whole.simpleString() or _wider(fresh, whole) == whole
        return "" if same else "?"
    types = {fold(each.name): each.dataType for each in whole.fields}
    return next(
        (
            each.name
            for each in fresh.fields
            if fold(each.name) in types and _find_type_clash(each.dataType, types[fold(each.name)])
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
            found.setdefault(fold(each.name), StructField(each.name, type_))
    return StructType(list(found.values()))


def _is_empty(type_: Any) -> bool:
    """Return whether a type is null, an object without fields, or a list or map of these."""
    while isinstance(type_, ArrayType | MapType):
        type_ = type_.elementType if isinstance(type_, ArrayType) else type_.valueType
    return isinstance(type_, NullType) or (isinstance(type_, StructType) and not type_.fields)


def _merge_schemas(before: Any, fresh: Any, widens: bool) -> Any:
    """Return the old schema with new fields appended; existing types are kept, or get wider."""
    if isinstance(before, ArrayType) and isinstance(fresh, ArrayType):
        return ArrayType(_merge_schemas(before.elementType, fresh.elementType, widens))
    if not (isinstance(before, StructType) and isinstance(fresh, StructType)):
        return _wider(before, fresh) or before if widens else before
    new = {fold(each.name): each for each in fresh.fields}
    fields = [
        StructField(
            each.name, _merge_schemas(each.dataType, new.pop(fold(each.name)).dataType, widens)
        )
        if fold(each.name) in new
        else each
        for each in before.fields
    ]
    return StructType([*fields, *new.values()])


def _wider(one: Any, other: Any) -> Any:
    """Return the type that has the values of both exactly, as Iceberg can widen; else None."""
    for narrow, wide in ((one, other), (other, one)):
        if isinstance(narrow, DecimalType) and isinstance(wide, DecimalType):
            if narrow.scale == wide.scale and narrow.precision < wide.precision:
                return wide
        elif (type(narrow), type(wide)) in _PROMOTED:
            return wide
    return None
