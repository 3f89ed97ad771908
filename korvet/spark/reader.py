"""Batch reading: options to ranges to pieces on the driver, pieces to Arrow on the executors."""

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from korvet.spark.catalog import Catalog, Log, Range, lost
from korvet.spark.errors import DataLost
from korvet.spark.options import ReadOptions
from korvet.spark.places import ranges, resolve
from korvet.spark.plan import pieces
from korvet.spark.pushdown import Bounds, Pushdown, narrowed, understood
from korvet.spark.worker import at_work


class Piece(InputPartition):
    """What one task reads."""

    def __init__(self, wanted: Range) -> None:
        self.wanted = wanted

    def __repr__(self) -> str:
        return f"{self.wanted.log} [{self.wanted.start}, {self.wanted.end})"


class ColdPiece(Piece):
    """What one task reads from the archive."""


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
        with at_work(), Catalog(self._options.connection) as catalog:
            logs = [
                part
                for part in catalog.logs(self._options.selection)
                if self._bounds.covers(part.topic, part.partition)
            ]
            cold: list[Range] = []
            if self._options.archive is None:
                whole = ranges(catalog, self._options, logs)
            else:
                cold, whole = self._parted(catalog, logs)
            wanted = narrowed(catalog, self._bounds, whole)
            return [
                *(ColdPiece(each) for each in cold),
                *(Piece(piece) for piece in pieces(catalog, self._options, wanted)),
            ]

    def _parted(self, catalog: Catalog, logs: Sequence[Log]) -> tuple[list[Range], list[Range]]:
        """What the archive has, and what only Redis has."""
        from korvet.spark import cold

        cold.check(self._options)
        ends = resolve(catalog, self._options.end, logs, self._options)
        archived, live = cold.parted(self._options, logs, catalog.bounds(logs), ends)
        low, high = self._bounds.low, self._bounds.high
        cut = [Range(each.log, max(each.start, low), min(each.end, high)) for each in archived]
        return [each for each in cut if each.start < each.end], live

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        if isinstance(partition, ColdPiece):
            from korvet.spark import cold

            yield from cold.rows(self._options, self._names, partition.wanted)
        elif isinstance(partition, Piece):
            yield from read_piece(self._options, self._names, partition.wanted)


def read_piece(options: ReadOptions, names: Sequence[str], wanted: Range) -> Iterator[Any]:
    """The records of a range as Arrow record batches of these columns."""
    from korvet.keys import Keys
    from korvet.spark.decode import NUMBERED, Decoder
    from korvet.spark.scan import Scan, aborted_in
    from korvet.spark.schema import arrow_schema
    from korvet.store.sync import SyncStore

    with at_work(), SyncStore.connect(options.connection.redis) as store:
        keys = Keys(options.connection.namespace)
        aborted = aborted_in(store, keys, wanted) if options.committed_only else ()
        decoder = Decoder(wanted, arrow_schema(tuple(names)), aborted)
        scan = Scan(store, keys, wanted, fail_on_data_loss=options.fail_on_data_loss)
        try:
            known = scan.numbered() if NUMBERED.issuperset(names) else None
            if known is not None:
                yield from decoder.numbered(known)
                return
            for rows in scan:
                yield from decoder.decode(rows)
        except DataLost:
            if options.archive is None:
                raise
            yield from _overtaken(options, names, Range(wanted.log, scan.position, wanted.end))


def _overtaken(options: ReadOptions, names: Sequence[str], rest: Range) -> Iterator[Any]:
    """The rest of a range that a trim has overtaken: what was trimmed is in the archive."""
    from korvet.spark import cold

    assert options.archive is not None
    held = cold.open_archive(options.archive, options.archive_format).held(rest.log)
    if held is None or held.end <= rest.start:
        raise lost(rest.log, rest.start, rest.end, rest.end)
    edge = min(held.end, rest.end)
    yield from cold.rows(options, names, Range(rest.log, rest.start, edge))
    if edge < rest.end:
        yield from read_piece(options, names, Range(rest.log, edge, rest.end))
