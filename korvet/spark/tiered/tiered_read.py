"""Read a topic from an archive and from Redis: archived offsets from the table, others from Redis.

Rules
- The driver need not open the table: offsets below the log start can only be in the table. Each
  task asks the table how much of its range it holds.
- A table only grows, and only archived records are trimmed: each task finds every record of its
  range once. If a trim removes part of a range during a task, the task continues in the table.
- Open all files before reading: a compaction may delete them.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from korvet.spark.errors import DataLoss, InvalidOption
from korvet.spark.metadata import MetadataClient
from korvet.spark.options import EARLIEST, ReadOptions
from korvet.spark.partitions import OffsetRange, PartitionLog
from korvet.spark.plan.offset_resolution import ranges_within
from korvet.spark.tiered.archive_table import Archive, ArchivedRange, open_archive
from korvet.spark.tiered.catalog_table import is_table_name

MAX_ATTEMPTS = 5
RedisReader = Callable[[ReadOptions, Sequence[str], OffsetRange], Iterator[Any]]
"""Reads a range from Redis."""


def split_by_storage(
    metadata: MetadataClient, options: ReadOptions, logs: Sequence[PartitionLog]
) -> tuple[list[OffsetRange], list[OffsetRange]]:
    """Return the ranges below the log start, and those in Redis, without empty ones."""
    _check_options(options, logs)
    bounds = metadata.bounds(logs, committed=options.committed_only)
    # Resolve offsets as if the log had never been trimmed.
    whole = [msgspec.structs.replace(bound, start=0, first=0) for bound in bounds]
    archived, local = [], []
    for each, bound in zip(ranges_within(options, logs, whole), bounds, strict=True):
        edge = min(max(bound.start, each.start), each.end)
        archived.append(OffsetRange(each.log, each.start, edge))
        local.append(OffsetRange(each.log, edge, each.end))
    return (
        [each for each in archived if each.start < each.end],
        [each for each in local if each.start < each.end],
    )


def _check_options(options: ReadOptions, logs: Sequence[PartitionLog]) -> None:
    """Raise InvalidOption or TopicRecreated for errors that the driver can detect."""
    for spec in (options.start, options.end):
        if spec.timestamp is not None or spec.timestamps is not None:
            raise InvalidOption(
                spec.option, "not possible with 'archive': filter on column timestamp instead."
            )
    if not is_table_name(options.archive or "", options.archive_format):
        archive = _open_archive(options)
        for part in logs:
            archive.archived_range(part)


def _open_archive(options: ReadOptions) -> Archive:
    assert options.archive is not None
    return open_archive(options.archive, options.archive_format)


def read_archive_only(
    options: ReadOptions, names: Sequence[str], wanted: OffsetRange
) -> Iterator[Any]:
    """Yield the records of a range that was trimmed from the log."""
    archived = _open_archive(options).archived_range(wanted.log)
    named = options.start.named(wanted.log.topic, wanted.log.partition)
    asked = named not in (None, EARLIEST)
    if options.fail_on_data_loss and (archived is not None or asked):
        if archived is None or archived.end < wanted.end:
            raise _missing_error(wanted, archived)
        if asked and wanted.start < archived.start:
            raise _missing_error(wanted, archived)
    if archived is not None:
        yield from read_archive(options, names, wanted)


def read_tiered(
    options: ReadOptions, names: Sequence[str], wanted: OffsetRange, local: RedisReader
) -> Iterator[Any]:
    """Yield the records of a range: from the table what it holds, the rest from Redis."""
    archived = _open_archive(options).archived_range(wanted.log)
    edge = wanted.start
    if archived is not None and archived.start <= edge < archived.end:
        edge = min(archived.end, wanted.end)
        yield from read_archive(options, names, OffsetRange(wanted.log, wanted.start, edge))
    if edge < wanted.end:
        yield from local(options, names, OffsetRange(wanted.log, edge, wanted.end))


def read_after_trim(
    options: ReadOptions, names: Sequence[str], left: OffsetRange, local: RedisReader
) -> Iterator[Any]:
    """Yield the rest of a range that was trimmed during the read, or raise DataLoss."""
    archived = _open_archive(options).archived_range(left.log)
    if archived is None or not archived.start <= left.start < archived.end:
        raise _missing_error(left, archived)
    yield from read_tiered(options, names, left, local)


def _missing_error(wanted: OffsetRange, archived: ArchivedRange | None) -> DataLoss:
    has = "has none of them" if archived is None else f"has {archived.start} to {archived.end - 1}"
    return DataLoss(
        f"Topic {wanted.log.topic!r} partition {wanted.log.partition}: of offsets {wanted.start} "
        f"to {wanted.end - 1} some are neither in the log nor in the archive, which {has}. "
        "Set failOnDataLoss to false to continue without them."
    )


def read_archive(options: ReadOptions, names: Sequence[str], wanted: OffsetRange) -> Iterator[Any]:
    """Yield the records of a range in the table, as Arrow record batches with these columns."""
    from korvet.spark.columns import arrow_schema

    schema = arrow_schema(tuple(names))
    for file in _open_files(options, wanted):
        with file:
            yield from _read_rows(file, names, wanted, schema)


def _open_files(options: ReadOptions, wanted: OffsetRange) -> list[Any]:
    """Open the files that may have records of the range, ordered by their lowest offset."""
    for attempt in range(MAX_ATTEMPTS):
        found: list[tuple[int, Any]] = []
        try:
            archive = _open_archive(options)
            for name in archive.files(wanted):
                file = archive.open(name)
                groups = _matching_row_groups(file, wanted)
                if groups:
                    found.append((_first_offset(file, groups), file))
                else:
                    file.close()
            return [file for _, file in sorted(found, key=lambda each: each[0])]
        except FileNotFoundError:
            for _, file in found:
                file.close()
            if attempt == MAX_ATTEMPTS - 1:
                raise
    return []


def _first_offset(file: Any, groups: Sequence[int]) -> int:
    """Return the lowest offset in the row groups, or 0 without statistics."""
    statistics = (
        column.statistics
        for group in map(file.metadata.row_group, groups)
        for column in map(group.column, range(group.num_columns))
        if column.path_in_schema == "offset"
    )
    return min(
        (each.min for each in statistics if each is not None and each.has_min_max), default=0
    )


def _matching_row_groups(file: Any, wanted: OffsetRange) -> list[int]:
    """Return the row groups that may have records of the range, by their statistics."""
    sought = {
        "topic": (wanted.log.topic, wanted.log.topic),
        "partition": (wanted.log.partition, wanted.log.partition),
        "offset": (wanted.start, wanted.end - 1),
    }
    found = []
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        if all(_overlaps(group.column(n), sought) for n in range(group.num_columns)):
            found.append(number)
    return found


def _overlaps(column: Any, sought: dict[str, tuple[Any, Any]]) -> bool:
    wanted, known = sought.get(column.path_in_schema), column.statistics
    if wanted is None or known is None or not known.has_min_max:
        return True
    return bool(known.min <= wanted[1] and known.max >= wanted[0])


def _read_rows(file: Any, names: Sequence[str], wanted: OffsetRange, schema: Any) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = list(dict.fromkeys([*names, "topic", "partition", "offset"]))
    for batch in file.iter_batches(row_groups=_matching_row_groups(file, wanted), columns=columns):
        table = pa.Table.from_batches([batch])
        mine = pc.equal(table["topic"], wanted.log.topic)
        mine = pc.and_(mine, pc.equal(table["partition"], wanted.log.partition))
        mine = pc.and_(mine, pc.greater_equal(table["offset"], wanted.start))
        mine = pc.and_(mine, pc.less(table["offset"], wanted.end))
        table = table.filter(mine)
        if table.num_rows:
            yield from table.select(list(names)).cast(schema).to_batches()
