"""An archive as a task opens it, without Spark's own readers: what it holds, and in which files.

Rules
- What a table holds is told by its newest commit (korvet.pipeline writes it).
- A table is opened anew whenever it is asked: others commit to it, and compact it, meanwhile.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from korvet.spark import named
from korvet.spark.catalog import Log, Range
from korvet.spark.errors import BadOption, OtherTopic

PROPERTY = "korvet.archive"
SUMMARY = "korvet.commit"
_RECENT = 20
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
    spans: tuple[Held, ...]
    id: str


def _nothing(_: Range) -> Iterable[str]:
    return ()


def _open(name: str) -> Any:
    import pyarrow.parquet as pq

    return pq.ParquetFile(name)


@dataclass(frozen=True)
class Archive:
    """A table as of one commit."""

    archived: tuple[Held, ...] = ()
    files: Callable[[Range], Iterable[str]] = _nothing
    """The files that may have records of a range, by what the table itself says of them."""
    open: Callable[[str], Any] = _open

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


def open_archive(text: str, format: str | None) -> Archive:
    """The table there, or of that name, as it is now; or BadOption."""
    try:
        if named.is_name(text, format):
            found = named.find(text, format)
            if found.table is not None:
                return _of_iceberg(text, found.table)
            return _at(text, Path(found.path), found.format)
        root = Path(text.removeprefix("file://"))
        return _at(text, root, format or _seen(root))
    except (OSError, msgspec.DecodeError) as error:
        raise BadOption("archive", f"there is no archive at {text}: {error}.") from error
    except ImportError as error:
        raise BadOption("archive", f"{text} needs {error.name}: pip install it.") from error


def _at(text: str, root: Path, format: str) -> Archive:
    if format == "delta":
        return _delta(text, root)
    if format == "iceberg":
        return _iceberg(text, root)
    if format == "parquet":
        return _parquet(root)
    raise BadOption("archiveFormat", f"must be parquet, delta or iceberg, not {format!r}.")


def _seen(root: Path) -> str:
    if (root / "_delta_log").is_dir():
        return "delta"
    return "iceberg" if (root / "metadata").is_dir() else "parquet"


def _foreign(text: str) -> BadOption:
    return BadOption("archive", f"{text} is a table that no archive of Korvet has made.")


def _parquet(root: Path) -> Archive:
    if not (root / "_korvet" / "table.json").exists():
        raise FileNotFoundError("no _korvet/table.json")
    batches = sorted((root / "data").glob("batch=*"))
    if not batches:
        return Archive()

    def files(wanted: Range) -> Iterable[str]:
        for batch in batches:
            if any(_touches(span, wanted) for span in _batch(batch).spans):
                yield from (str(file) for file in sorted(batch.rglob("*.parquet")))

    return Archive(_batch(batches[-1]).archived, files)


def _batch(batch: Path) -> _Told:
    return _told((batch / "_commit.json").read_bytes())


def _touches(span: Held, wanted: Range) -> bool:
    log = wanted.log
    same = (span.topic, span.partition) == (log.topic, log.partition)
    return same and span.start < wanted.end and wanted.start < span.end


def _delta(text: str, root: Path) -> Archive:
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    try:
        table = DeltaTable(str(root))
    except TableNotFoundError as error:
        raise FileNotFoundError(f"no Delta table in {root}") from error
    if PROPERTY not in table.metadata().configuration:
        raise _foreign(text)

    def files(wanted: Range) -> Iterable[str]:
        import pyarrow.dataset as ds

        log, offset = wanted.log, ds.field("offset")
        sought = (ds.field("topic") == log.topic) & (ds.field("partition") == log.partition)
        sought &= (offset >= wanted.start) & (offset < wanted.end)
        for fragment in table.to_pyarrow_dataset().get_fragments(filter=sought):
            yield str(root / fragment.path)

    for most in (_RECENT, None):
        for entry in table.history(most):
            said = entry.get("userMetadata")
            if said and '"archived"' in said:
                return Archive(_told(said).archived, files)
    return Archive()


def _iceberg(text: str, root: Path) -> Archive:
    from pyiceberg.table import StaticTable

    return _of_iceberg(text, StaticTable.from_metadata(str(_newest(root / "metadata"))))


def _of_iceberg(text: str, table: Any) -> Archive:
    if PROPERTY not in table.properties:
        raise _foreign(text)

    def files(wanted: Range) -> Iterable[str]:
        log = wanted.log
        sought = f"topic == '{log.topic}' and partition == {log.partition}"
        sought += f" and offset >= {wanted.start} and offset < {wanted.end}"
        for task in table.scan(row_filter=sought).plan_files():
            if task.delete_files:
                raise BadOption(
                    "archive",
                    f"rows of {text} were deleted and still stand in its files: rewrite them "
                    "(Iceberg's rewrite_data_files) first.",
                )
            yield task.file.file_path

    def opened(name: str) -> Any:
        import pyarrow.parquet as pq

        if name.startswith(("/", "file:")):
            return pq.ParquetFile(name.removeprefix("file:"))
        return pq.ParquetFile(table.io.new_input(name).open())

    snapshot = table.current_snapshot()
    while snapshot is not None:
        summary: Any = snapshot.summary
        said = None if summary is None else summary.additional_properties.get(SUMMARY)
        if said is not None:
            return Archive(_told(said).archived, files, opened)
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    return Archive()


def _newest(folder: Path) -> Path:
    """The table as of its last commit. The hint beside it is written later, and not in one step."""
    found = {int(m[1]): file for file in folder.iterdir() if (m := _METADATA.fullmatch(file.name))}
    if not found:
        raise FileNotFoundError(f"no metadata of a Hadoop table in {folder}")
    return found[max(found)]


def _told(text: str | bytes) -> _Told:
    return msgspec.json.decode(text, type=_Told)
