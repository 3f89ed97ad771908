"""Add columns for the fields of Avro values.

Rules
- Bare Avro has one schema, of a file. Confluent's serializers write a zero byte and the id of the
  writer's schema in four bytes: each value is decoded by the schema of its id.
- A value is decoded whole or not at all. Spark's decoder ignores bytes after a value, so decode a
  record of the value and of random bytes that are appended to it: these must be read back.
- Wrong bytes may decode to values: the length of the whole is the only check of bare Avro.
- A registry that does not answer ends the job. An id that it does not know marks the rows.
"""

import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql import functions as f
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import ArrayType, MapType, StructType

from korvet.spark.pipeline.errors import PipelineError
from korvet.spark.pipeline.json_columns import fold
from korvet.spark.pipeline.spark_session import AVRO, error_text

if TYPE_CHECKING:
    from korvet.avro.registry import SchemaRegistry

PREFIX_BYTES = 5
MAX_IDS = 100
"""Max schemas of one commit: each is a column of the query."""
END_BYTES = 16
MAX_LEVELS = 50
"""Max levels of a schema: Spark's planner takes each on the stack of a thread."""
_VALUE, _END = "value", "end"


class AvroById(msgspec.Struct, frozen=True):
    """The writers' schemas: texts by id, and the registry for other ids."""

    texts: Mapping[int, str] = {}
    registry: "SchemaRegistry | None" = None

    def find(self, schema_id: int) -> tuple[str, str]:
        """Return the text of a schema, or an empty text and why there is none.

        Raises PipelineError if the registry does not answer.
        """
        from korvet.avro.registry import RegistryUnavailable
        from korvet.avro.schema import AvroError, inline

        text = self.texts.get(schema_id)
        if text is not None:
            return text, ""
        if self.registry is None:
            return "", f"no schema with id {schema_id} was given"
        found = self.registry.load(schema_id)
        if isinstance(found, RegistryUnavailable):
            raise PipelineError(str(found))
        if isinstance(found, AvroError):
            return "", f"schema {schema_id}: {str(found).rstrip('.')}"
        return inline(found.text, found.references), ""


class Decoded(msgspec.Struct, frozen=True):
    """The values of one schema: for which rows, their column and type, why it is not read."""

    matches: Any
    column: Any = None
    type: Any = None
    is_whole: Any = None
    reason: str = ""


def decode(frame: Any, schemas: str | AvroById) -> tuple[Any, list[Decoded], Any]:
    """Return the frame with decoded values, what was decoded, and the reason without a schema."""
    if isinstance(schemas, str):
        wide, found = _decode_one(frame, "_avro", f.lit(True), f.col("value"), schemas)
        if found.reason:
            raise PipelineError(f"--value avro: {found.reason}")
        return wide, [found], f.lit(None).cast("string")
    marked = f.expr(f"octet_length(value) >= {PREFIX_BYTES} AND substring(value, 1, 1) = X'00'")
    number = f.conv(f.hex(f.substring("value", 2, PREFIX_BYTES - 1)), 16, 10).cast("long")
    wide = frame.withColumn("_id", f.when(marked, number))
    cases = []
    for schema_id in _common_ids(wide):
        matches = f.col("_id") == schema_id
        text, why = schemas.find(schema_id)
        found = Decoded(matches, reason=why)
        if text:
            body = f.expr(f"substring(value, {PREFIX_BYTES + 1})")
            wide, found = _decode_one(wide, f"_avro{schema_id}", matches, body, text)
        cases.append(found)
    absent = f.when(f.col("_id").isNull(), "no schema id at the start").otherwise(
        f"more than {MAX_IDS} schema ids in one commit"
    )
    return wide, cases, absent


def _common_ids(frame: Any) -> list[int]:
    """Return the most frequent schema ids of the rows."""
    ids = frame.where(f.col("_id").isNotNull()).groupBy("_id").count()
    rows = ids.orderBy(f.desc("count"), "_id").limit(MAX_IDS).collect()
    return sorted(row["_id"] for row in rows)


def _decode_one(frame: Any, name: str, matches: Any, data: Any, text: str) -> tuple[Any, Decoded]:
    """Add the column of one schema's values; the reason says why it cannot be read."""
    end = secrets.token_bytes(END_BYTES)
    field = f'{{"name": "{_VALUE}", "type": {text}}}'
    fixed = f'{{"type": "fixed", "name": "KorvetEnd{end.hex()}", "size": {END_BYTES}}}'
    whole = (
        f'{{"type": "record", "name": "KorvetWhole{end.hex()}", "fields": [{field}, '
        f'{{"name": "{_END}", "type": {fixed}}}]}}'
    )
    try:
        parsed = from_avro(f.concat(data, f.lit(end)), whole, {"mode": "PERMISSIVE"})
        wide = frame.withColumn(name, f.when(matches & f.col("value").isNotNull(), parsed))
        type_ = wide.schema[name].dataType[_VALUE].dataType
    except Exception as error:
        # PySpark has printed how to get the package.
        is_absent = isinstance(error, TypeError)
        why = f"Spark does not have {AVRO}, see above" if is_absent else error_text(error)
        return frame, Decoded(matches, reason=why)
    if not isinstance(type_, StructType):
        return frame, Decoded(matches, reason="the Avro schema is no record")
    if _levels(type_) > MAX_LEVELS:
        return frame, Decoded(matches, reason=f"the Avro schema has more than {MAX_LEVELS} levels")
    if clash := same_name(type_):
        return frame, Decoded(matches, reason=f"Avro fields differ only in case: {clash}")
    read = f.col(f"{name}.{_END}")
    return wide, Decoded(matches, f.col(f"{name}.{_VALUE}"), type_, read == f.lit(end))


def same_name(type_: Any) -> str:
    """Return a name that two fields of an object have but for its case, else an empty string."""
    if isinstance(type_, ArrayType):
        return same_name(type_.elementType)
    if isinstance(type_, MapType):
        return same_name(type_.valueType)
    if not isinstance(type_, StructType):
        return ""
    names = [fold(each.name) for each in type_.fields]
    twice = (name for name in names if names.count(name) > 1)
    return next(twice, "") or next(filter(None, (same_name(e.dataType) for e in type_.fields)), "")


def _levels(type_: Any) -> int:
    """Return how deep a type is nested."""
    if isinstance(type_, StructType):
        return 1 + max((_levels(each.dataType) for each in type_.fields), default=0)
    if isinstance(type_, ArrayType):
        return 1 + _levels(type_.elementType)
    return 1 + _levels(type_.valueType) if isinstance(type_, MapType) else 0


def reason_of(cases: Sequence[Decoded], absent: Any) -> Any:
    """Return the column with the reason why a value is not decoded; NULL if it is."""
    found: Any = f.when(f.col("value").isNull(), None)
    for each in cases:
        if each.reason:
            found = found.when(each.matches, each.reason)
            continue
        wrong = f.when(each.is_whole.isNull(), "does not fit the Avro schema").when(
            ~each.is_whole, "bytes are left after the Avro value"
        )
        found = found.when(each.matches, wrong)
    return found.otherwise(absent)
