"""Open an archive table in a task without Spark: what it holds, and in which files.

Rules
- The newest commit written by korvet.spark.pipeline says what the table holds.
- Open the table again for each use: other processes commit to it and compact it.
"""

import re
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from korvet.spark.errors import InvalidOption, TopicRecreated
from korvet.spark.partitions import OffsetRange, PartitionLog
from korvet.spark.tiered import catalog_table

PROPERTY = "korvet.archive"
"""Table property that marks an archive of korvet pipeline."""
SUMMARY = "korvet.commit"
"""Key of the commit pointer in the summary of an Iceberg snapshot."""
STATES = "_korvet"
"""The directory of state files in a table. Readers and cleaners of tables skip hidden names.

A file has the state and a checksum of its bytes, compressed by zlib."""
_MAX_VERSIONS = 20
_METADATA = re.compile(r"v(\d+)(?:\.gz)?\.metadata\.json")


class ArchivedRange(msgspec.Struct, frozen=True):
    """Offsets of one partition in the table, from `start` up to `end` (exclusive)."""

    topic: str
    partition: int
    topic_id: str
    start: int
    end: int


class _CommitSummary(msgspec.Struct, frozen=True):
    archived: tuple[ArchivedRange, ...]
    spans: tuple[ArchivedRange, ...]
    id: str


class CommitPointer(msgspec.Struct, frozen=True):
    """The content of a commit of Delta or Iceberg: the state is in a file that it names."""

    number: int
    id: str
    rows: int
    total_rows: int
    checksum: int
    state: str
    """The name of the state file in STATES."""


decode_pointer = msgspec.json.Decoder(CommitPointer).decode
_decode_summary = msgspec.json.Decoder(_CommitSummary).decode


def _open_parquet(source: Any) -> Any:
    import pyarrow.parquet as pq

    return pq.ParquetFile(source)


@dataclass(frozen=True)
class Archive:
    """A table as of one commit."""

    archived: tuple[ArchivedRange, ...] = ()
    files: Callable[[OffsetRange], Iterable[str]] = lambda wanted: ()
    """The files that may have records of a range, by the table's own metadata."""
    open: Callable[[str], Any] = _open_parquet

    def archived_range(self, part: PartitionLog) -> ArchivedRange | None:
        """Return the archived offsets of a partition; raise TopicRecreated for another id."""
        for each in self.archived:
            if (each.topic, each.partition) == (part.topic, part.partition):
                if each.topic_id != part.topic_id:
                    raise TopicRecreated(
                        f"The archive holds another topic {part.topic!r} (id {each.topic_id}); "
                        f"the log's has id {part.topic_id}."
                    )
                return each
        return None


def open_archive(text: str, format: str | None) -> Archive:
    """Open the table at a path or with a name, or raise InvalidOption."""
    try:
        if catalog_table.is_table_name(text, format):
            found = catalog_table.find_table(text, format)
            if found.table is not None:
                return _iceberg_archive(text, found.table)
            return _open_at(text, Path(found.path), found.format)
        root = Path(text.removeprefix("file://"))
        return _open_at(text, root, format or detect_format(root))
    except (OSError, zlib.error, ValueError) as error:
        raise InvalidOption("archive", f"there is no archive at {text}: {error}.") from error
    except ImportError as error:
        raise InvalidOption("archive", f"{text} needs {error.name}: pip install it.") from error


def _open_at(text: str, root: Path, format: str) -> Archive:
    if format == "delta":
        return _delta_archive(text, root)
    if format == "iceberg":
        from pyiceberg.table import StaticTable

        newest = _newest_metadata(root / "metadata")
        return _iceberg_archive(text, StaticTable.from_metadata(str(newest)))
    if format == "parquet":
        return _parquet_archive(root)
    raise InvalidOption("archiveFormat", f"must be parquet, delta or iceberg, not {format!r}.")


def detect_format(root: Path) -> str:
    """Return the format of the table in a directory; parquet if there is none."""
    if (root / "_delta_log").is_dir():
        return "delta"
    return "iceberg" if (root / "metadata").is_dir() else "parquet"


def _foreign_table_error(text: str) -> InvalidOption:
    return InvalidOption("archive", f"{text} is a table that was not made by korvet pipeline.")


def _parquet_archive(root: Path) -> Archive:
    if not (root / "_korvet" / "table.json").exists():
        raise FileNotFoundError("no _korvet/table.json")
    batches = sorted((root / "data").glob("batch=*"))
    if not batches:
        return Archive()

    def files(wanted: OffsetRange) -> Iterable[str]:
        for batch in batches:
            if any(_overlaps(span, wanted) for span in _batch_file(batch).spans):
                yield from (str(file) for file in sorted(batch.rglob("*.parquet")))

    return Archive(_batch_file(batches[-1]).archived, files)


def _batch_file(batch: Path) -> _CommitSummary:
    return _decode_summary((batch / "_commit.json").read_bytes())


def _overlaps(span: ArchivedRange, wanted: OffsetRange) -> bool:
    log = wanted.log
    same = (span.topic, span.partition) == (log.topic, log.partition)
    return same and span.start < wanted.end and wanted.start < span.end


def _delta_archive(text: str, root: Path) -> Archive:
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    try:
        table = DeltaTable(str(root))
    except TableNotFoundError as error:
        raise FileNotFoundError(f"no Delta table in {root}") from error
    if PROPERTY not in table.metadata().configuration:
        raise _foreign_table_error(text)

    def files(wanted: OffsetRange) -> Iterable[str]:
        import pyarrow.dataset as ds

        log, offset = wanted.log, ds.field("offset")
        sought = (ds.field("topic") == log.topic) & (ds.field("partition") == log.partition)
        sought &= (offset >= wanted.start) & (offset < wanted.end)
        for fragment in table.to_pyarrow_dataset().get_fragments(filter=sought):
            yield str(root / fragment.path)

    for limit in (_MAX_VERSIONS, None):
        for entry in table.history(limit):
            metadata = entry.get("userMetadata")
            if metadata and '"state"' in metadata:
                name = decode_pointer(metadata).state
                state = zlib.decompress((root / STATES / name).read_bytes())
                return Archive(_decode_summary(state).archived, files)
    return Archive()


def _iceberg_archive(text: str, table: Any) -> Archive:
    if PROPERTY not in table.properties:
        raise _foreign_table_error(text)

    def files(wanted: OffsetRange) -> Iterable[str]:
        log = wanted.log
        sought = f"topic == '{log.topic}' and partition == {log.partition}"
        sought += f" and offset >= {wanted.start} and offset < {wanted.end}"
        for task in table.scan(row_filter=sought).plan_files():
            if task.delete_files:
                raise InvalidOption(
                    "archive",
                    f"{text} has deleted rows that are still in its data files: rewrite them first "
                    "(Iceberg's rewrite_data_files).",
                )
            yield task.file.file_path

    def opened(name: str) -> Any:
        return _open_parquet(_source(table, name))

    snapshot = table.current_snapshot()
    while snapshot is not None:
        summary: Any = snapshot.summary
        commit = None if summary is None else summary.additional_properties.get(SUMMARY)
        if commit is not None:
            state = _decode_summary(_read_state(table, decode_pointer(commit)))
            return Archive(state.archived, files, opened)
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    return Archive()


def _source(table: Any, name: str) -> Any:
    """Return the path of an Iceberg table's file, or the open file of a store."""
    if name.startswith(("/", "file:")):
        return name.removeprefix("file://").removeprefix("file:")
    return table.io.new_input(name).open()


def _read_state(table: Any, pointer: CommitPointer) -> bytes:
    source = _source(table, f"{table.location()}/{STATES}/{pointer.state}")
    if isinstance(source, str):
        return zlib.decompress(Path(source).read_bytes())
    with source:
        return zlib.decompress(source.read())


def _newest_metadata(folder: Path) -> Path:
    """Return the metadata file of the last commit; version-hint.text may lag behind it."""
    found = {int(m[1]): file for file in folder.iterdir() if (m := _METADATA.fullmatch(file.name))}
    if not found:
        raise FileNotFoundError(f"no metadata of a Hadoop table in {folder}")
    return found[max(found)]
