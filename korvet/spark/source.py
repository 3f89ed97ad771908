"""What Spark registers as format `korvet`: name, schema, readers, writers, in this order.

Rules
- Options are parsed when a schema, reader or writer is asked for, on the driver, so that a wrong
  one ends the query before any task starts.
- Everything here is pickled to other processes: it holds plain values, and what it needs for its
  work is imported where the work is done.
"""

from typing import Any

from korvet.spark import columns, parsing
from korvet.spark.errors import BadOption, UnsupportedSpark
from korvet.spark.options import ReadOptions, WriteOptions
from korvet.spark.worker import at_work, unsearched

try:
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceReader,
        DataSourceStreamArrowWriter,
        DataSourceStreamReader,
        DataSourceWriter,
    )
except ImportError as error:  # pragma: no cover - another environment
    raise UnsupportedSpark(
        f"korvet.spark needs PySpark 4.1 or newer: pip install 'korvet[spark]' ({error})"
    ) from error


class KorvetDataSource(DataSource):
    """Topics of a Korvet log as a DataFrame, and DataFrames into topics."""

    @classmethod
    def name(cls) -> str:
        return "korvet"

    def schema(self) -> str:
        """The columns of Spark's Kafka source, or those of option `columns`."""
        with at_work():
            names = self._read(streaming=False, strict=False).names
            return columns.ddl(names)

    def reader(self, schema: Any) -> "DataSourceReader":
        from korvet.spark.reader import BatchReader

        return BatchReader(self._read(streaming=False), _names(schema))

    def streamReader(self, schema: Any) -> "DataSourceStreamReader":
        with unsearched():
            from korvet.spark.stream import RefusedReader, StreamReader

        try:
            return StreamReader(self._read(streaming=True), _names(schema))
        except BadOption as error:
            return RefusedReader(error)

    def writer(self, schema: Any, overwrite: bool) -> "DataSourceWriter":
        from korvet.spark.writer import BatchWriter

        if overwrite:
            raise BadOption("mode", "a log is only ever appended to: use mode('append').")
        return BatchWriter(self._write(streaming=False), schema)

    def streamWriter(self, schema: Any, overwrite: bool) -> "DataSourceStreamArrowWriter":
        from korvet.spark.writer import StreamWriter

        if overwrite:
            raise BadOption("outputMode", "a log is only ever appended to; not 'complete'.")
        return StreamWriter(self._write(streaming=True), schema)

    def _read(self, *, streaming: bool, strict: bool = True) -> ReadOptions:
        given = dict(self.options)
        if not strict:
            # Batch or stream is not yet known; what only one of them takes is checked later.
            later = {name.lower() for name in (*parsing.PER_TRIGGER, "startingOffsets")}
            given = {name: value for name, value in given.items() if name.lower() not in later}
        return parsing.parse_read(given, streaming=streaming)

    def _write(self, *, streaming: bool) -> WriteOptions:
        return parsing.parse_write(dict(self.options), streaming=streaming)


def _names(schema: Any) -> tuple[str, ...]:
    """The columns of a schema: any of ours, in any order."""
    names = tuple(field.name for field in schema.fields)
    wrong = columns.unknown(names)
    if wrong:
        raise BadOption("schema", f"{', '.join(wrong)}: columns are {', '.join(columns.TYPES)}.")
    if len(set(names)) < len(names):
        raise BadOption("schema", f"{', '.join(names)}: each column once.")
    for field in schema.fields:
        type_ = field.dataType.simpleString()
        if type_ != columns.TYPES[field.name]:
            wanted = columns.TYPES[field.name]
            hint = " (timestamp_ltz in DDL and SQL)" if type_ == "timestamp_ntz" else ""
            raise BadOption("schema", f"column {field.name} is {wanted}{hint}, not {type_}.")
        if not field.nullable:
            raise BadOption("schema", f"column {field.name} may be null: leave out NOT NULL.")
    return names
