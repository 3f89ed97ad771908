"""The data source that Spark registers as format `korvet`.

Rules
- Parse options on the driver, when Spark requests a schema, reader or writer: a wrong option then
  fails the query before any task starts.
- Readers and writers are pickled: they hold plain values and import what they need where it runs.
"""

from typing import Any

from korvet.spark import columns, option_parser
from korvet.spark.errors import InvalidOption, UnsupportedSpark
from korvet.spark.options import ReadOptions, WriteOptions
from korvet.spark.worker_process import gc_paused, task_scope

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
        f"korvet.spark needs PySpark 4.1 or newer: install korvet[spark] ({error})"
    ) from error


class KorvetDataSource(DataSource):
    """Reads topics as a DataFrame and writes DataFrames to topics."""

    @classmethod
    def name(cls) -> str:
        return "korvet"

    def schema(self) -> str:
        """Return the columns of Spark's Kafka source, or those of option `columns`."""
        with task_scope():
            names = self._read(streaming=False, strict=False).names
            return columns.ddl(names)

    def reader(self, schema: Any) -> "DataSourceReader":
        from korvet.spark.batch_reader import BatchReader, FilteringReader, TableReader

        options = self._read(streaming=False)
        if options.table:
            return TableReader(options, _names(schema))
        reader_class = FilteringReader if options.push_filters else BatchReader
        return reader_class(options, _names(schema))

    def streamReader(self, schema: Any) -> "DataSourceStreamReader":
        with gc_paused():
            from korvet.spark.stream_reader import FailingReader, StreamReader

        try:
            return StreamReader(self._read(streaming=True), _names(schema))
        except InvalidOption as error:
            return FailingReader(error)

    def writer(self, schema: Any, overwrite: bool) -> "DataSourceWriter":
        from korvet.spark.write.writers import BatchWriter

        if overwrite:
            raise InvalidOption("mode", "records can only be appended: use mode('append').")
        return BatchWriter(self._write(streaming=False), schema)

    def streamWriter(self, schema: Any, overwrite: bool) -> "DataSourceStreamArrowWriter":
        from korvet.spark.write.writers import StreamWriter

        if overwrite:
            raise InvalidOption("outputMode", "records can only be appended: use 'append'.")
        return StreamWriter(self._write(streaming=True), schema)

    def _read(self, *, streaming: bool, strict: bool = True) -> ReadOptions:
        given = dict(self.options)
        if not strict:
            # Batch or stream is not known yet: check options that only one of them takes later.
            later = {name.lower() for name in (*option_parser.STREAM_ONLY, "startingOffsets")}
            given = {name: value for name, value in given.items() if name.lower() not in later}
        return option_parser.parse_read(given, streaming=streaming)

    def _write(self, *, streaming: bool) -> WriteOptions:
        return option_parser.parse_write(dict(self.options), streaming=streaming)


def _names(schema: Any) -> tuple[str, ...]:
    """Return the column names of a schema; raise InvalidOption for wrong names or types."""
    names = tuple(field.name for field in schema.fields)
    wrong = [name for name in names if name not in columns.TYPES]
    if wrong:
        raise InvalidOption(
            "schema", f"{', '.join(wrong)}: columns are {', '.join(columns.TYPES)}."
        )
    if len(set(names)) < len(names):
        raise InvalidOption("schema", f"{', '.join(names)}: a column is named twice.")
    for field in schema.fields:
        type_ = field.dataType.simpleString()
        if type_ != columns.TYPES[field.name]:
            wanted = columns.TYPES[field.name]
            hint = " (timestamp_ltz in DDL and SQL)" if type_ == "timestamp_ntz" else ""
            raise InvalidOption("schema", f"column {field.name} is {wanted}{hint}, not {type_}.")
        if not field.nullable:
            raise InvalidOption("schema", f"column {field.name} is nullable: remove NOT NULL.")
    return names
