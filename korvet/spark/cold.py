"""The archived part of a log, read by tasks without Spark's own readers (option `archive`).

Rules
- What the table holds is told by its newest commit (korvet.pipeline writes it); what lies before
  its end is read from the table, what lies behind it from Redis. So there is no gap and no overlap.
- A trim that passes while a task reads is no loss: only what the table has is trimmed. The task
  reads on in the table.
- The table is opened where it is read: files that a compaction has replaced are looked up again.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from korvet.scripts.log import BoundsReply
from korvet.spark.catalog import Log, Range, lost
from korvet.spark.errors import BadOption, OtherTopic
from korvet.spark.options import EARLIEST, LATEST, Place, ReadOptions

TRIES = 5
_METADATA = re.compile(r"v(\d+)(?:\.gz)?\.metadata\.json")


class Held(msgspec.Struct, frozen=True):
    """What the table holds of one partition: from `start` on, before `end`."""

    topic: str
    partition: int
    topic_id: str
    start: int
    end: int


class _Told(msgspec.Struct, frozen=True):
    archived: tuple[Held, ...]
    id: str


class Archive(msgspec.Struct, frozen=True):
    """A table as of one commit: what it holds, and in which files."""

    archived: tuple[Held, ...]
    files: tuple[str, ...]

    def held(self, part: Log) -> Held | None:
        """What it holds of a partition; OtherTopic if that is another topic's."""
        for each in self.archived:
            if (each.topic, each.partition) == (part.topic, part.partition):
                if each.topic_id != part.topic_id:
                    raise OtherTopic(
                        f"The archive holds another topic {part.topic!r} (id {each.topic_id}); "
                        f"the log's has id {part.topic_id}."
                    )
                return each
        return None


def open_archive(path: str, format: str | None) -> Archive:
    """The table at the path as it is now, or BadOption."""
    root = Path(path.removeprefix("file://"))
    kind = format or _seen(root)
    try:
        if kind == "delta":
            return _delta(root)
        if kind == "iceberg":
            return _iceberg(root)
        if kind == "parquet":
            return _parquet(root)
    except (OSError, msgspec.DecodeError) as error:
        raise BadOption("archive", f"there is no archive at {path}: {error}.") from error
    except ImportError as error:
        raise BadOption("archive", f"{kind} needs {error.name}: pip install it.") from error
    raise BadOption("archiveFormat", f"must be parquet, delta or iceberg, not {kind!r}.")


def _seen(root: Path) -> str:
    if (root / "_delta_log").is_dir():
        return "delta"
    return "iceberg" if (root / "metadata").is_dir() else "parquet"


def _parquet(root: Path) -> Archive:
    if not (root / "_korvet" / "table.json").exists():
        raise FileNotFoundError("no _korvet/table.json")
    batches = sorted((root / "data").glob("batch=*"))
    if not batches:
        return Archive((), ())
    told = _told((batches[-1] / "_commit.json").read_bytes())
    files = tuple(str(file) for batch in batches for file in sorted(batch.rglob("*.parquet")))
    return Archive(told.archived, files)


def _delta(root: Path) -> Archive:
    from deltalake import DeltaTable

    table = DeltaTable(str(root))
    for entry in table.history():
        text = entry.get("userMetadata")
        if text and '"archived"' in text:
            return Archive(_told(text).archived, tuple(table.file_uris()))
    return Archive((), ())


def _iceberg(root: Path) -> Archive:
    from pyiceberg.table import StaticTable

    table = StaticTable.from_metadata(str(_newest(root / "metadata")))
    snapshot = table.current_snapshot()
    files = tuple(task.file.file_path.removeprefix("file:") for task in table.scan().plan_files())
    while snapshot is not None:
        summary: Any = snapshot.summary
        text = None if summary is None else summary.additional_properties.get("korvet.commit")
        if text is not None:
            return Archive(_told(text).archived, files)
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    return Archive((), ())


def _newest(folder: Path) -> Path:
    """The table as of its last commit. The hint beside it is written later, and not in one step."""
    found = {int(m[1]): file for file in folder.iterdir() if (m := _METADATA.fullmatch(file.name))}
    if not found:
        raise FileNotFoundError(f"no metadata of a Hadoop table in {folder}")
    return found[max(found)]


def _told(text: str | bytes) -> _Told:
    return msgspec.json.decode(text, type=_Told)


def parted(
    options: ReadOptions, logs: Sequence[Log], bounds: Sequence[BoundsReply], ends: Sequence[int]
) -> tuple[list[Range], list[Range]]:
    """What is read from the table, and what from Redis."""
    assert options.archive is not None
    archive = open_archive(options.archive, options.archive_format)
    cold, hot = [], []
    for part, bound, end in zip(logs, bounds, ends, strict=True):
        held = archive.held(part)
        start = _asked(options.start, part)
        behind = bound.start if start is None else start
        if held is not None:
            low = held.start if start is None else max(start, held.start)
            cold.append(Range(part, low, min(end, held.end)))
            behind = max(start or 0, held.end)
        if behind < bound.start and options.fail_on_data_loss:
            raise lost(part, behind, end, bound.start)
        hot.append(Range(part, max(behind, bound.start), end))
    return (
        [each for each in cold if each.start < each.end],
        [each for each in hot if each.start < each.end],
    )


def check(options: ReadOptions) -> None:
    """Nothing, or BadOption for a place that an archive cannot find."""
    for place in (options.start, options.end):
        if place.timestamp is not None or place.timestamps is not None:
            raise BadOption(
                place.option, "cannot go with 'archive': filter on column timestamp instead."
            )


def _asked(place: Place, part: Log) -> int | None:
    """The offset asked for; None for the first there is."""
    if place.offsets is None:
        return None
    at = place.offsets.get(part.topic, {}).get(part.partition, EARLIEST)
    return None if at in (EARLIEST, LATEST) else at


def rows(options: ReadOptions, names: Sequence[str], wanted: Range) -> Iterator[Any]:
    """The range's records out of the table, as Arrow record batches of these columns.

    Ends where the table ends, should that be before the range does.
    """
    from korvet.spark.schema import arrow_schema

    assert options.archive is not None
    schema = arrow_schema(tuple(names))
    for file in _opened(options.archive, options.archive_format, wanted):
        with file:
            yield from _rows_of(file, names, wanted, schema)


def _opened(path: str, format: str | None, wanted: Range) -> list[Any]:
    """The files that can hold such rows, open: they can be read even when their names are gone."""
    import pyarrow.parquet as pq

    for attempt in range(TRIES):
        found: list[Any] = []
        try:
            for name in open_archive(path, format).files:
                file = pq.ParquetFile(name)
                if _groups(file, wanted):
                    found.append(file)
                else:
                    file.close()
            return found
        except FileNotFoundError:
            for file in found:
                file.close()
            if attempt == TRIES - 1:
                raise
    return []


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
