"""Batch reading: plan splits on the driver, read them as Arrow batches in tasks."""

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from korvet.log.tables import fill
from korvet.spark import columns
from korvet.spark.errors import DataLoss, InvalidOption, LeftRedis, TopicChanged
from korvet.spark.metadata import MetadataClient
from korvet.spark.options import ReadOptions
from korvet.spark.partitions import OffsetRange, PartitionLog, raise_if_gone, truncated_error
from korvet.spark.plan.offset_resolution import batch_ranges
from korvet.spark.plan.pushdown import Bounds, narrow_bounds, narrow_ranges
from korvet.spark.plan.splits import group_batch_splits, split_batch
from korvet.spark.tiered import tiered_read
from korvet.spark.worker_process import task_scope
from korvet.store.redis_py import InlineStore, run_inline

TABLE_PAGE = 1000
"""Fields that one HSCAN asks for."""

logger = logging.getLogger("korvet.spark")


class RangeSplit(InputPartition):
    """The offset ranges that one task reads, in order.

    `is_archived`: from the archive, as the log was trimmed above them.
    """

    def __init__(self, ranges: Sequence[OffsetRange], *, is_archived: bool = False) -> None:
        self.ranges = tuple(ranges)
        self.is_archived = is_archived

    def __repr__(self) -> str:
        return ", ".join(f"{each.log} [{each.start}, {each.end})" for each in self.ranges)


def ranges_of(partition: InputPartition | None) -> Sequence[OffsetRange]:
    """Return the ranges of a task; Spark passes None for a read without a split."""
    return partition.ranges if isinstance(partition, RangeSplit) else ()


class BatchReader(DataSourceReader):
    """Reads the ranges that its options select when the query is planned."""

    def __init__(self, options: ReadOptions, names: Sequence[str]) -> None:
        self._options = options
        self._names = tuple(names)
        self._bounds = Bounds()

    def partitions(self) -> list[InputPartition]:
        with task_scope(), MetadataClient(self._options.connection) as metadata:
            return metadata.retry_on_change(
                self._options.selection, lambda logs: self._plan_splits(metadata, logs)
            )

    def _plan_splits(
        self, metadata: MetadataClient, selected: Sequence[PartitionLog]
    ) -> list[InputPartition]:
        archived: list[OffsetRange] = []
        if self._options.archive is None:
            # Resolve all selected partitions first: the options must name exactly these.
            whole = batch_ranges(metadata, self._options, selected)
            local = narrow_ranges(
                metadata, self._bounds, [each for each in whole if self._covers(each)]
            )
        else:
            archived, local = self._plan_tiered(metadata, selected)
        found = split_batch(metadata, self._options, local)
        return [
            *(RangeSplit([each], is_archived=True) for each in archived),
            *map(RangeSplit, group_batch_splits(metadata, self._options, found)),
        ]

    def _plan_tiered(
        self, metadata: MetadataClient, logs: Sequence[PartitionLog]
    ) -> tuple[list[OffsetRange], list[OffsetRange]]:
        """Return the ranges that only the archive has, and those that Redis has."""
        # Do not narrow by timestamp: Redis may trim a range before its task reads it from the
        # archive.
        bounds = msgspec.structs.replace(self._bounds, since=None)
        archived, local = (
            [each for each in found if self._covers(each)]
            for found in tiered_read.split_by_storage(metadata, self._options, logs)
        )
        return narrow_ranges(metadata, bounds, archived), narrow_ranges(metadata, bounds, local)

    def _covers(self, range_: OffsetRange) -> bool:
        return self._bounds.covers(range_.log.topic, range_.log.partition)

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        for wanted in ranges_of(partition):
            args = self._options, self._names, wanted
            if self._options.archive is None:
                yield from read_range(*args)
            elif isinstance(partition, RangeSplit) and partition.is_archived:
                yield from tiered_read.read_archive_only(*args)
            else:
                yield from tiered_read.read_tiered(*args, read_range)


class FilteringReader(BatchReader):
    """A batch reader that narrows its ranges by the filters that Spark passes.

    Spark keeps one plan per DataFrame or view, so the filters of one query limit the next as well.
    """

    def pushFilters(self, filters: Sequence[Filter]) -> list[Filter]:
        """Narrow the read by the filters and return those that Spark must still apply."""
        left = []
        for each in filters:
            self._bounds, exact = narrow_bounds(self._bounds, each)
            if not exact:
                left.append(each)
        return left


class TableSplit(InputPartition):
    """The table of a partition."""

    def __init__(self, log: PartitionLog) -> None:
        self.log = log


class TableReader(DataSourceReader):
    """Reads the newest value of each key from the tables of topics, not from their logs."""

    def __init__(self, options: ReadOptions, names: Sequence[str]) -> None:
        wrong = [name for name in names if name not in columns.OF_TABLE]
        if wrong:
            raise InvalidOption(
                "table", f"has no column {', '.join(wrong)}, only {', '.join(columns.OF_TABLE)}."
            )
        self._options = options
        self._names = tuple(names)

    def partitions(self) -> list[InputPartition]:
        with task_scope(), MetadataClient(self._options.connection) as metadata:
            found = metadata.logs(self._options.selection)
            for log in found:
                if metadata.store.command("HGET", log.handle(metadata.keys).log, "table") is None:
                    raise InvalidOption(
                        "table", f"topic {log.topic!r} has none: set its config table.enable=true."
                    )
            return [TableSplit(log) for log in found]

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        import pyarrow as pa

        assert isinstance(partition, TableSplit)
        log, schema = partition.log, columns.arrow_schema(self._names)
        with task_scope(), MetadataClient(self._options.connection).with_reconnect() as metadata:
            for pairs in _table_pages(metadata, log):
                values: dict[str, list[Any]] = {
                    "key": [key for key, _ in pairs],
                    "value": [value for _, value in pairs],
                    "topic": [log.topic] * len(pairs),
                    "partition": [log.partition] * len(pairs),
                }
                arrays = [pa.array(values[each.name], each.type) for each in schema]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _table_pages(
    metadata: MetadataClient, log: PartitionLog
) -> Iterator[list[tuple[bytes, bytes]]]:
    """Yield the keys and values of a partition's table in pages, each key once."""
    handle, store = log.handle(metadata.keys), metadata.store
    raise_if_gone(log, run_inline(fill(InlineStore(store), handle)).error)
    cursor, seen = b"0", set[bytes]()
    while True:
        # HSCAN may return a field twice while the hash grows.
        cursor, flat = store.command("HSCAN", handle.table, cursor, "COUNT", TABLE_PAGE)
        pairs = [pair for pair in zip(flat[::2], flat[1::2], strict=True) if pair[0] not in seen]
        seen.update(key for key, _ in pairs)
        if pairs:
            yield list(dict(pairs).items())
        if cursor == b"0":
            return


def read_range(options: ReadOptions, names: Sequence[str], wanted: OffsetRange) -> Iterator[Any]:
    """Read a range as Arrow record batches with these columns: from Redis, or from segments."""
    from korvet.spark.columns import arrow_schema
    from korvet.spark.decode.decoder import OFFSET_COLUMNS, Decoder
    from korvet.spark.decode.range_scan import RangeScan, aborted_transactions

    with task_scope(), MetadataClient(options.connection).with_reconnect() as metadata:
        store, keys = metadata.store, metadata.keys
        aborted = aborted_transactions(store, keys, wanted) if options.committed_only else ()
        decoder = Decoder(wanted, arrow_schema(tuple(names)), aborted)
        scan = RangeScan(store, keys, wanted, fail_on_data_loss=options.fail_on_data_loss)
        try:
            dense = scan.dense_range() if OFFSET_COLUMNS.issuperset(names) else None
            if dense is not None:
                yield from decoder.offset_batches(dense)
            else:
                for rows in scan:
                    yield from decoder.decode(rows)
            if scan.seen_end < wanted.end or scan.epoch != wanted.log.epoch:
                _check_log_end(metadata, options, wanted)
        except LeftRedis as left:
            from korvet.spark.decode.segment_scan import read_segments

            edge = min(left.local_start, wanted.end)
            below = OffsetRange(wanted.log, scan.position, edge)
            yield from read_segments(metadata, options, names, below)
            if edge < wanted.end:
                yield from read_range(options, names, OffsetRange(wanted.log, edge, wanted.end))
        except DataLoss:
            if options.archive is None or scan.position >= wanted.end:
                raise
            remainder = OffsetRange(wanted.log, scan.position, wanted.end)
            yield from tiered_read.read_after_trim(options, names, remainder, read_range)
        except TopicChanged as gone:
            if options.fail_on_data_loss:
                raise
            logger.warning("%s", gone)


def _check_log_end(metadata: MetadataClient, options: ReadOptions, wanted: OffsetRange) -> None:
    """Raise DataLoss if the log has lost records of the range since it was planned."""
    [bound] = metadata.bounds([wanted.log])
    lost = bound.lost_since(wanted.log.epoch, wanted.end)
    if lost < 0:
        return
    error = truncated_error(wanted.log, wanted.end, lost)
    if options.fail_on_data_loss:
        raise error
    logger.warning("%s", error)
