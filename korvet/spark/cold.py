"""One log, hot and cold: what an archive holds is read from it, the rest from Redis.

Rules
- Who plans cannot open a table by its name, and need not: what lies before the log's beginning
  can only be in the table, and each task asks the table how far it goes within its own range.
- A table only grows, and only what it has is trimmed. So however the two move while a query runs,
  each task finds every record of its range once: a task that a trim overtakes goes on in the table.
- A table's files are opened before they are read: a compaction may take their names away.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from korvet.spark.catalog import Catalog, Log, Range
from korvet.spark.errors import BadOption, DataLost
from korvet.spark.named import is_name
from korvet.spark.options import EARLIEST, Place, ReadOptions
from korvet.spark.places import spanned
from korvet.spark.tables import Archive, Held, open_archive

TRIES = 5
Hot = Callable[[ReadOptions, Sequence[str], Range], Iterator[Any]]
"""Reads a range that the log has."""


def parted(
    catalog: Catalog, options: ReadOptions, logs: Sequence[Log]
) -> tuple[list[Range], list[Range]]:
    """What lies before the log's beginning, and what Redis has; empty ranges left out."""
    _check(options, logs)
    bounds = catalog.bounds(logs, committed=options.committed_only)
    # Offsets are counted as if the log had never been trimmed.
    whole = [msgspec.structs.replace(bound, start=0, first=0) for bound in bounds]
    cold, hot = [], []
    for each, bound in zip(spanned(options, logs, whole), bounds, strict=True):
        edge = min(max(bound.start, each.start), each.end)
        cold.append(Range(each.log, each.start, edge))
        hot.append(Range(each.log, edge, each.end))
    return (
        [each for each in cold if each.start < each.end],
        [each for each in hot if each.start < each.end],
    )


def _check(options: ReadOptions, logs: Sequence[Log]) -> None:
    """Nothing, or what can be known to be wrong before any task starts."""
    for place in (options.start, options.end):
        if place.timestamp is not None or place.timestamps is not None:
            raise BadOption(
                place.option, "cannot go with 'archive': filter on column timestamp instead."
            )
    if not is_name(options.archive or "", options.archive_format):
        archive = _open(options)
        for part in logs:
            archive.held(part)


def _open(options: ReadOptions) -> Archive:
    assert options.archive is not None
    return open_archive(options.archive, options.archive_format)


def before(options: ReadOptions, names: Sequence[str], wanted: Range) -> Iterator[Any]:
    """The records of a range that the log does not have any more."""
    held = _open(options).held(wanted.log)
    asked = _is_asked(options.start, wanted.log)
    if options.fail_on_data_loss and (held is not None or asked):
        if held is None or held.end < wanted.end:
            raise _missing(wanted, held)
        if asked and wanted.start < held.start:
            raise _missing(wanted, held)
    if held is not None:
        yield from rows(options, names, wanted)


def either(options: ReadOptions, names: Sequence[str], wanted: Range, hot: Hot) -> Iterator[Any]:
    """The records of a range: what the table has from the table, the rest from Redis."""
    held = _open(options).held(wanted.log)
    edge = wanted.start
    if held is not None and held.start <= edge < held.end:
        edge = min(held.end, wanted.end)
        yield from rows(options, names, Range(wanted.log, wanted.start, edge))
    if edge < wanted.end:
        yield from hot(options, names, Range(wanted.log, edge, wanted.end))


def overtaken(options: ReadOptions, names: Sequence[str], rest: Range, hot: Hot) -> Iterator[Any]:
    """The rest of a range whose beginning was trimmed meanwhile, or DataLost."""
    held = _open(options).held(rest.log)
    if held is None or not held.start <= rest.start < held.end:
        raise _missing(rest, held)
    yield from either(options, names, rest, hot)


def _is_asked(place: Place, part: Log) -> bool:
    """Whether an offset of the partition was named, rather than the first there is."""
    return place.named(part.topic, part.partition) not in (None, EARLIEST)


def _missing(wanted: Range, held: Held | None) -> DataLost:
    has = "has none of it" if held is None else f"goes from {held.start} to before {held.end}"
    return DataLost(
        f"Topic {wanted.log.topic!r} partition {wanted.log.partition}: of offsets {wanted.start} "
        f"to {wanted.end - 1} some are neither in the log any more nor in the archive, which "
        f"{has}. Set failOnDataLoss to false to go on without them."
    )


def rows(options: ReadOptions, names: Sequence[str], wanted: Range) -> Iterator[Any]:
    """The range's records out of the table, as Arrow record batches of these columns."""
    from korvet.spark.schema import arrow_schema

    schema = arrow_schema(tuple(names))
    for file in _opened(options, wanted):
        with file:
            yield from _rows_of(file, names, wanted, schema)


def _opened(options: ReadOptions, wanted: Range) -> list[Any]:
    """The files that can hold such rows, open, those with lower offsets first."""
    for attempt in range(TRIES):
        found: list[tuple[int, Any]] = []
        try:
            archive = _open(options)
            for name in archive.files(wanted):
                file = archive.open(name)
                groups = _groups(file, wanted)
                if groups:
                    found.append((_first(file, groups), file))
                else:
                    file.close()
            return [file for _, file in sorted(found, key=lambda each: each[0])]
        except FileNotFoundError:
            for _, file in found:
                file.close()
            if attempt == TRIES - 1:
                raise
    return []


def _first(file: Any, groups: Sequence[int]) -> int:
    """The lowest offset in these row groups, if the file tells it."""
    told = (
        column.statistics
        for group in map(file.metadata.row_group, groups)
        for column in map(group.column, range(group.num_columns))
        if column.path_in_schema == "offset"
    )
    return min((each.min for each in told if each is not None and each.has_min_max), default=0)


def _groups(file: Any, wanted: Range) -> list[int]:
    """The row groups that can hold rows of the range, by their statistics."""
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
    wanted, told = sought.get(column.path_in_schema), column.statistics
    if wanted is None or told is None or not told.has_min_max:
        return True
    return bool(told.min <= wanted[1] and told.max >= wanted[0])


def _rows_of(file: Any, names: Sequence[str], wanted: Range, schema: Any) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = list(dict.fromkeys([*names, "topic", "partition", "offset"]))
    for batch in file.iter_batches(row_groups=_groups(file, wanted), columns=columns):
        table = pa.Table.from_batches([batch])
        mine = pc.equal(table["topic"], wanted.log.topic)
        mine = pc.and_(mine, pc.equal(table["partition"], wanted.log.partition))
        mine = pc.and_(mine, pc.greater_equal(table["offset"], wanted.start))
        mine = pc.and_(mine, pc.less(table["offset"], wanted.end))
        table = table.filter(mine)
        if table.num_rows:
            yield from table.select(list(names)).cast(schema).to_batches()
