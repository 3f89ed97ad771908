"""Batch reading: options to ranges to pieces on the driver, pieces to Arrow on the executors."""

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from korvet.spark.catalog import Catalog, Range
from korvet.spark.options import ReadOptions
from korvet.spark.places import ranges
from korvet.spark.plan import pieces
from korvet.spark.pushdown import Bounds, Pushdown, narrowed, understood


class Piece(InputPartition):
    """What one task reads."""

    def __init__(self, wanted: Range) -> None:
        self.wanted = wanted

    def __repr__(self) -> str:
        return f"{self.wanted.log} [{self.wanted.start}, {self.wanted.end})"


class BatchReader(DataSourceReader):
    """Reads the ranges that its options name, as they are when the query is planned."""

    def __init__(self, options: ReadOptions, names: Sequence[str]) -> None:
        self._options = options
        self._names = tuple(names)
        self._bounds = Bounds()
        self.pushFilters = Pushdown(self)  # type: ignore[method-assign]

    def accept(self, filters: Sequence[Filter]) -> list[Filter]:
        """The filters are used where they narrow a range; those that still need Spark."""
        left = []
        for each in filters:
            bounds, exact = understood(self._bounds, each)
            self._bounds = bounds
            if not exact:
                left.append(each)
        return left

    def partitions(self) -> list[InputPartition]:
        with Catalog(self._options.connection) as catalog:
            logs = [
                part
                for part in catalog.logs(self._options.selection)
                if self._bounds.covers(part.topic, part.partition)
            ]
            wanted = narrowed(catalog, self._bounds, ranges(catalog, self._options, logs))
            return [Piece(piece) for piece in pieces(catalog, self._options, wanted)]

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        if isinstance(partition, Piece):
            yield from read_piece(self._options, self._names, partition.wanted)


def read_piece(options: ReadOptions, names: Sequence[str], wanted: Range) -> Iterator[Any]:
    """The records of a range as Arrow record batches of these columns."""
    from korvet.keys import Keys
    from korvet.spark.collecting import uncollected
    from korvet.spark.decode import Decoder
    from korvet.spark.scan import Scan, aborted_in
    from korvet.spark.schema import arrow_schema
    from korvet.store.sync import SyncStore

    with uncollected(), SyncStore.connect(options.connection.redis) as store:
        keys = Keys(options.connection.namespace)
        aborted = aborted_in(store, keys, wanted) if options.committed_only else ()
        decoder = Decoder(wanted, arrow_schema(tuple(names)), aborted)
        for rows in Scan(store, keys, wanted, fail_on_data_loss=options.fail_on_data_loss):
            yield from decoder.decode(rows)
