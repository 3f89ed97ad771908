"""Batch reading: options to ranges to pieces on the driver, pieces to Arrow on the executors."""

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from korvet.spark.catalog import Catalog, Log, Range
from korvet.spark.errors import DataLost, Vanished
from korvet.spark.options import ReadOptions
from korvet.spark.places import ranges
from korvet.spark.plan import pieces, tasks
from korvet.spark.pushdown import Bounds, Pushdown, narrowed, understood
from korvet.spark.worker import at_work

logger = logging.getLogger("korvet.spark")


class Piece(InputPartition):
    """What one task reads."""

    def __init__(self, wanted: Range) -> None:
        self.wanted = wanted

    def __repr__(self) -> str:
        return f"{self.wanted.log} [{self.wanted.start}, {self.wanted.end})"


class ColdPiece(Piece):
    """What one task reads that the log does not have any more."""


class Pieces(InputPartition):
    """What one task reads, piece by piece."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.pieces = tuple(pieces)

    def __repr__(self) -> str:
        return ", ".join(map(repr, self.pieces))


def task_of(ranges: Sequence[Range]) -> InputPartition:
    """What a task reads that has these ranges."""
    found = [*map(Piece, ranges)]
    return found[0] if len(found) == 1 else Pieces(found)


def pieces_of(partition: InputPartition | None) -> Sequence[Piece]:
    """What a task reads, piece by piece."""
    if isinstance(partition, Pieces):
        return partition.pieces
    return [partition] if isinstance(partition, Piece) else []


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
            return catalog.settled(
                self._options.selection, lambda logs: self._pieces(catalog, logs)
            )

    def _pieces(self, catalog: Catalog, selected: Sequence[Log]) -> list[InputPartition]:
        cold: list[Range] = []
        if self._options.archive is None:
            # The options name the partitions that are selected, whatever a filter leaves of them.
            whole = ranges(catalog, self._options, selected)
            hot = narrowed(catalog, self._bounds, [each for each in whole if self._covers(each)])
        else:
            cold, hot = self._parted(catalog, selected)
        found = pieces(catalog, self._options, hot)
        return [*map(ColdPiece, cold), *map(task_of, tasks(catalog, self._options, found))]

    def _parted(self, catalog: Catalog, logs: Sequence[Log]) -> tuple[list[Range], list[Range]]:
        """What only the archive has, and what Redis has, too."""
        from korvet.spark.cold import parted

        # Where a moment begins in Redis says nothing of the table, which a trim may yet make the
        # only one to have it.
        bounds = msgspec.structs.replace(self._bounds, since=None)
        before, behind = (
            [each for each in found if self._covers(each)]
            for found in parted(catalog, self._options, logs)
        )
        return narrowed(catalog, bounds, before), narrowed(catalog, bounds, behind)

    def _covers(self, each: Range) -> bool:
        return self._bounds.covers(each.log.topic, each.log.partition)

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        for piece in pieces_of(partition):
            yield from self._read(piece)

    def _read(self, piece: Piece) -> Iterator[Any]:
        if self._options.archive is None:
            yield from read_piece(self._options, self._names, piece.wanted)
            return
        from korvet.spark import cold

        asked = self._options, self._names, piece.wanted
        yield from (
            cold.before(*asked) if isinstance(piece, ColdPiece) else cold.either(*asked, read_piece)
        )


def read_piece(options: ReadOptions, names: Sequence[str], wanted: Range) -> Iterator[Any]:
    """The records of a range as Arrow record batches of these columns."""
    from korvet.spark.decode import NUMBERED, Decoder
    from korvet.spark.scan import Scan, aborted_in
    from korvet.spark.schema import arrow_schema

    with at_work(), Catalog(options.connection).patient() as catalog:
        store, keys = catalog.store, catalog.keys
        aborted = aborted_in(store, keys, wanted) if options.committed_only else ()
        decoder = Decoder(wanted, arrow_schema(tuple(names)), aborted)
        scan = Scan(store, keys, wanted, fail_on_data_loss=options.fail_on_data_loss)
        try:
            known = scan.numbered() if NUMBERED.issuperset(names) else None
            if known is not None:
                yield from decoder.numbered(known)
            else:
                for rows in scan:
                    yield from decoder.decode(rows)
            if scan.told < wanted.end:
                _check_end(catalog, options, wanted)
        except DataLost:
            if options.archive is None or scan.position >= wanted.end:
                raise
            from korvet.spark.cold import overtaken

            rest = Range(wanted.log, scan.position, wanted.end)
            yield from overtaken(options, names, rest, read_piece)
        except Vanished as gone:
            if options.fail_on_data_loss:
                raise
            logger.warning("%s", gone)


def _check_end(catalog: Catalog, options: ReadOptions, wanted: Range) -> None:
    """Nothing, or DataLost where the log ends before the range does, which it had when the range
    was planned: a Redis that fails over may lose its newest records."""
    [bound] = catalog.bounds([wanted.log])
    if bound.end >= wanted.end:
        return
    error = DataLost(
        f"{wanted.log}: offsets up to {wanted.end - 1} were asked for, and the log ends at "
        f"{bound.end}: Redis has lost what it had, as in a failover."
    )
    if options.fail_on_data_loss:
        raise error
    logger.warning("%s", error)
