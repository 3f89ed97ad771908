"""Drive the data source without Spark: every object is pickled in between, as Spark does."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.types import _parse_datatype_json_string

from korvet.spark.columns import arrow_schema, spark_json
from korvet.spark.data_source import KorvetDataSource

T = TypeVar("T")
Row = dict[str, Any]


def sent(value: T) -> T:
    """Return the value as another process receives it."""
    copy: T = cloudpickle.loads(cloudpickle.dumps(value))
    return copy


def source(url: str, **options: object) -> KorvetDataSource:
    """Return the source with these options; `kafka__x` is option `kafka.x`."""
    given = {name.replace("__", "."): str(value) for name, value in options.items()}
    return sent(KorvetDataSource({"redis": url, **given}))


def schema_of(made: KorvetDataSource) -> Any:
    """Return the schema that Spark makes of the source's own."""
    names = [column.split(" ")[0] for column in _columns(made.schema())]
    return _parse_datatype_json_string(spark_json(tuple(names)))


def _columns(ddl: str) -> Iterator[str]:
    yield from (part for part in ddl.replace("key:string,value", "k").split(", "))


def rows(batches: Iterable[Any], names: Sequence[str]) -> list[Row]:
    """Return the rows of a reader after checking their types."""
    found: list[Row] = []
    for batch in batches:
        assert isinstance(batch, pa.RecordBatch)
        assert batch.schema.equals(arrow_schema(tuple(names)))
        batch.validate(full=True)
        found += batch.to_pylist()
    return found


def read(url: str, *, filters: Sequence[Any] = (), **options: object) -> list[Row]:
    """Return the rows of a batch read, split by split."""
    made = source(url, **options, **({"pushFilters": "true"} if filters else {}))
    schema = schema_of(made)
    reader = made.reader(schema)
    if filters:
        list(reader.pushFilters(list(filters)))
    reader = sent(reader)
    found: list[Row] = []
    for piece in reader.partitions():
        found += rows(sent(reader).read(sent(piece)), schema.names)
    return found


def pieces(url: str, **options: object) -> list[tuple[str, int, int]]:
    """Return the splits of a batch read: partition, start, end."""
    made = source(url, **options)
    splits = made.reader(schema_of(made)).partitions()
    wanted = [each for split in splits for each in split.ranges]
    return [(str(each.log), each.start, each.end) for each in wanted]
