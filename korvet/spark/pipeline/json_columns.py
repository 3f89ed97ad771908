"""Parse JSON values into columns, and find what a column would lose.

Rules
- Spark's parser ignores bytes after an object, takes one of two equal names, rounds numbers, and
  has no value for a name in another case. Each of these is a reason here.
- Spark parses each level of a value, and builds each level of a schema, on the stack of a thread. A
  value with more than MAX_DEPTH levels is not parsed. What is deeper than MAX_LEVELS is text.
- An object with a reason that leaves its fields in doubt has no columns. If one field does not fit,
  the others have their columns.
"""

import secrets
import sys
from typing import Any

from pyspark.sql import functions as f
from pyspark.sql.types import (
    ArrayType,
    DecimalType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    _parse_datatype_json_string,
)


def fold(name: str) -> str:
    """Return the form in which Spark compares names: as Java does, letter by letter."""
    upper = (each.upper() if len(each.upper()) == 1 else each for each in name)
    return "".join(each.lower()[0] for each in upper)


MAX_WHOLE = 2**53 - 1
"""The largest whole number that is the only one of its double."""
MAX_DEPTH = 100
"""Max levels of a value: with 990, Spark's parser ends the job."""
MAX_LEVELS = 20
"""Max levels of a column: with 100, Spark's planner ends the job."""
_BAD = "_bad"
_STRICT = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}
_OWN_FOLD = "".join(each for each in map(chr, range(1 << 16)) if fold(each) != each.lower())
"""Letters that Spark compares in another form than their small letter, such as a dotless i."""
_CASE = "a name differs from a column's in case"
_NUMBER = "a number does not fit its column"
_DEEP = f"nested deeper than {MAX_DEPTH} levels"
_LONE = "half a surrogate pair, which is no letter"
_TYPE = "a field has another type than its column"


def infer(spark: Any, frame: Any) -> Any:
    """Infer the schema of all values that are JSON objects."""
    texts = frame.select(_shallow(f.col("value").cast("string")).alias("value"))
    encoder = spark._jvm.org.apache.spark.sql.Encoders.STRING()
    reader = spark._jsparkSession.read()
    reader = reader.option("dropFieldIfAllNull", True)
    for name, value in _STRICT.items():
        reader = reader.option(name, value)
    reader = reader.option("columnNameOfCorruptRecord", _BAD)
    found: Any = _parse_datatype_json_string(
        reader.json(getattr(texts._jdf, "as")(encoder)).schema().json()
    )
    return _cut(StructType([each for each in found.fields if each.name != _BAD]), MAX_LEVELS)


def _cut(type_: Any, levels: int) -> Any:
    """Return the type with text in place of what has more levels."""
    if not isinstance(type_, ArrayType | StructType):
        return type_
    if not levels:
        return StringType()
    if isinstance(type_, ArrayType):
        return ArrayType(_cut(type_.elementType, levels - 1))
    return StructType([StructField(e.name, _cut(e.dataType, levels - 1)) for e in type_])


def _shallow(text: Any) -> Any:
    """Return the text, or NULL if it has more than MAX_DEPTH levels."""
    openings = f.length(text) - f.length(f.translate(text, "[{", ""))
    bare = f.regexp_replace(f.regexp_replace(text, r"(?s)\\.", ""), '"[^"]*"', "")
    brackets = f.split(f.regexp_replace(bare, r"[^\[\]{}]", ""), "")

    def counted(levels: Any, bracket: Any) -> Any:
        now = levels["now"] + f.when(bracket.isin("[", "{"), 1).otherwise(-1)
        return f.struct(now.alias("now"), f.greatest(levels["deepest"], now).alias("deepest"))

    none = f.struct(f.lit(0).alias("now"), f.lit(0).alias("deepest"))
    deepest = f.aggregate(brackets, none, counted, lambda levels: levels["deepest"])
    return f.when(openings <= MAX_DEPTH, text).when(deepest <= MAX_DEPTH, text)


def parse(frame: Any, schema: Any) -> tuple[Any, Any, Any]:
    """Return the frame with parsed values, their column, and the column of the reasons."""
    text = f.col("_text")
    marked = StructType([*schema.fields, StructField(_BAD, StringType())])
    options = {**_STRICT, "columnNameOfCorruptRecord": _BAD}
    wide = frame.withColumn("_text", _shallow(f.col("value").cast("string")))
    wide = wide.withColumn("_syntax", _syntax_error(text))
    wide = wide.withColumn(
        "_object", f.when(f.col("_syntax").isNull(), f.try_parse_json(text))
    ).withColumn("_parsed", f.when(f.col("_syntax").isNull(), f.from_json(text, marked, options)))
    wrong = (
        f.when(f.col("value").isNull(), None)
        .when(text.isNull(), _DEEP)
        .when(f.col("_syntax").isNotNull(), f.col("_syntax"))
        .otherwise(
            f.coalesce(
                _misfit(f.col("_object"), schema),
                f.when(f.col(f"_parsed.{_BAD}").isNotNull(), _TYPE),
                _changed_text(text),
            )
        )
    )
    return wide, f.col("_parsed"), wrong


def _syntax_error(text: Any) -> Any:
    """Return why a text is not one JSON object with distinct names; NULL if it is.

    The text is also parsed as the first field of an object whose second has a random name. Only if
    the text is one whole value are these the names of that object.
    """
    end = secrets.token_hex(8)
    whole = f.concat(f.lit('{"v":'), text, f.lit(f',"{end}":0}}'))
    names = f.json_object_keys(whole)
    is_whole = f.coalesce(names == f.array(f.lit("v"), f.lit(end)), f.lit(False))
    strict = f.from_json(whole, f"v string, `{end}` int", _STRICT)[end].isNotNull()
    more = f.coalesce(f.size(names) > 0, f.lit(False)) | f.json_object_keys(text).isNotNull()
    distinct = f.try_parse_json(text).isNotNull()
    return (
        f.when(f.try_validate_utf8(text).isNull(), "not UTF-8")
        .when(~is_whole, f.when(more, "more bytes after the JSON value").otherwise("no JSON"))
        .when(~distinct, f.when(strict, "a name is twice in an object").otherwise("no JSON"))
        .when(f.json_object_keys(text).isNull(), "no JSON object")
    )


def _changed_text(text: Any) -> Any:
    """Return what Spark would write as other text: infinite numbers, halves of surrogate pairs."""
    plain = f.regexp_replace(text, r"\\\\", "")
    pair = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    lone = f.regexp_replace(plain, pair, "").rlike(r"\\u[dD][89a-fA-F]")
    bare = f.regexp_replace(f.regexp_replace(text, r"(?s)\\.", ""), '"[^"]*"', "")
    numbers = f.regexp_extract_all(bare, f.lit("[0-9][0-9.eE+-]*"), 0)
    infinite = f.exists(numbers, lambda each: each.try_cast("double") > sys.float_info.max)
    long = text.rlike(r"[eE]\+?[0-9]{3}|[0-9]{300}")
    return f.when(text.contains("\\u") & lone, _LONE).when(long & infinite, _NUMBER)


def _misfit(variant: Any, type_: Any) -> Any:
    """Return why a variant loses something in a column of that type; None if it never does."""
    if isinstance(type_, StructType):
        return _object_misfit(f.try_variant_get(variant, "$", "map<string,variant>"), type_)
    if isinstance(type_, ArrayType):
        if _misfit(f.lit(None), type_.elementType) is None:
            return None
        items = f.try_variant_get(variant, "$", "array<variant>")
        reasons = f.transform(items, lambda each: _misfit(each, type_.elementType))
        return f.get(f.filter(reasons, lambda each: each.isNotNull()), f.lit(0))
    if not isinstance(type_, LongType | DecimalType | DoubleType):
        return None
    kind = f.schema_of_variant(variant)
    is_number = kind.rlike("^(BIGINT|DECIMAL|DOUBLE|FLOAT)")
    return f.when(is_number & ~_fits(variant, kind, type_), _NUMBER)


def _object_misfit(variant: Any, type_: Any) -> Any:
    names = [each.name for each in type_]
    folded = [fold(name) for name in names]

    def clashes(key: Any) -> Any:
        small = f.lower(f.translate(key, _OWN_FOLD, fold(_OWN_FOLD)))
        return small.isin(folded) & ~key.isin(names)

    clash = f.exists(f.map_keys(variant), clashes)
    reasons = [f.when(clash, _CASE)]
    for each in type_:
        found = _misfit(variant[each.name], each.dataType)
        if found is not None:
            reasons.append(found)
    return f.coalesce(*reasons) if len(reasons) > 1 else reasons[0]


def _fits(variant: Any, kind: Any, type_: Any) -> Any:
    """Return whether a variant that is a number is exact in the type."""
    if isinstance(type_, LongType):
        return kind == "BIGINT"
    exact = f.try_variant_get(variant, "$", "decimal(38,0)")
    double = f.try_variant_get(variant, "$", "double")
    is_whole = kind.rlike(r"^BIGINT|^DECIMAL\(\d+,\s*0\)")
    if isinstance(type_, DecimalType):
        return f.when(is_whole, exact.try_cast(type_).isNotNull()).otherwise(double % 1 == 0)
    limit = f.when(is_whole, float(MAX_WHOLE)).otherwise(sys.float_info.max)
    return f.abs(double) <= limit
