"""`verify`: check that log and table hold the same records, partition by partition.

Rules
- Compare the range that both have: from the later of both starts up to the table's end. Rows that
  the log has trimmed are checked against the table's own commits.
- Check the whole table against its commits: row count and checksum as counted at the write. This
  detects rows that were lost or changed later, even if the log has trimmed them.
- Sums do not depend on row order. Spark computes each side in one pass, in pieces of each
  partition's range. Pieces that a trim reached during the read, and rows of later commits, are left
  to the check against commits: an archiver may run meanwhile.
- Foreign entries (added by XADD) without a timestamp have the time of reading in dense mode: in
  topics with such entries do not compare timestamps with the log.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from korvet.spark.metadata import MetadataClient
from korvet.spark.options import Connection, Selection
from korvet.spark.partitions import OffsetRange, PartitionLog
from korvet.spark.pipeline.commit_metadata import UNKNOWN, CommitMetadata, Span
from korvet.spark.pipeline.errors import TopicMismatch
from korvet.spark.pipeline.next_commit import has_foreign_entries
from korvet.spark.pipeline.table import ArchiveTable
from korvet.spark.pipeline.verify_sums import (
    MAX_PIECES,
    NO_SUMS,
    ComparedRange,
    Key,
    RowSum,
    TableSums,
    sums_of_log,
    sums_of_table,
)


class PartitionComparison(msgspec.Struct, frozen=True):
    """The comparison of one partition, with the problems found."""

    topic: str
    partition: int
    log_first: int
    log_next: int
    span: Span | None
    log: RowSum
    table: RowSum
    """Rows in the range that both have."""
    whole: RowSum
    """All rows of the partition in the table."""
    duplicates: int
    waiting: int
    problems: tuple[str, ...]


class Verdict(msgspec.Struct, frozen=True):
    """The comparison of all partitions, and of the table with its commits."""

    partitions: tuple[PartitionComparison, ...]
    rows: int
    problems: tuple[str, ...]

    @property
    def equal(self) -> bool:
        """Return whether there are no problems."""
        return not self.problems and not any(each.problems for each in self.partitions)


def verify_archive(
    spark: Any, table: ArchiveTable, connection: Connection, topics: Sequence[str]
) -> Verdict:
    """Compare the topics with the table."""
    state = table.state()
    with MetadataClient(connection) as metadata:
        sides = _compared_ranges(metadata, state, topics)
        metadata.with_reconnect()
        backlog = _waiting(metadata, sides)
        logs = sums_of_log(spark, connection, sides)
        trimmed = [bound.first for bound in metadata.bounds([each.part for each in sides])]
    ours = sums_of_table(table.frame(), sides, state)
    later = table.state()
    compared = tuple(
        _compare(each, logs, ours, later, first, waiting)
        for each, first, waiting in zip(sides, trimmed, backlog, strict=True)
    )
    return Verdict(compared, *_check_commits(state, later, ours))


def _compared_ranges(
    metadata: MetadataClient, state: CommitMetadata, topics: Sequence[str]
) -> list[ComparedRange]:
    logs = metadata.logs(Selection(topics=tuple(topics)))
    compacted = {name for name in topics if metadata.topic(name).policy.compact}
    begun = {span.topic for span in state.archived}
    found = []
    appended = _appended(metadata, logs)
    bounds = metadata.bounds(logs, committed=True)
    for part, bound, entries in zip(logs, bounds, appended, strict=True):
        archived = state.archived_range(part.topic, part.partition)
        if archived is not None and archived.topic_id != part.topic_id:
            raise TopicMismatch(
                f"The table holds another topic {part.topic!r} (id {archived.topic_id}) than the "
                f"log (id {part.topic_id})."
            )
        found.append(
            ComparedRange(
                part,
                bound.start,
                bound.first,
                bound.next,
                archived,
                part.topic in begun,
                part.topic in compacted,
                has_foreign_entries(part, bound.end, entries),
            )
        )
    return found


def _appended(metadata: MetadataClient, logs: Sequence[PartitionLog]) -> list[int]:
    """Return how many entries were appended to each log, without foreign entries."""
    names = [part.handle(metadata.keys) for part in logs]
    found = metadata.store.commands([("HGET", each.log, "entries") for each in names])
    return [int(entries or 0) for entries in found]


def _waiting(metadata: MetadataClient, sides: Sequence[ComparedRange]) -> list[int]:
    """Return how many records of each log are not in the table yet."""
    ranges = []
    for each in sides:
        begin = each.first if each.span is None else max(each.first, each.span.end)
        ranges.append(OffsetRange(each.part, min(begin, each.next), each.next))
    return metadata.count(ranges)


def _compare(
    side: ComparedRange,
    logs: dict[Key, dict[int, RowSum]],
    tables: dict[Key, TableSums],
    later: CommitMetadata,
    trimmed: int,
    waiting: int,
) -> PartitionComparison:
    key = (side.part.topic, side.part.partition)
    ours, theirs = tables.get(key, NO_SUMS), logs.get(key, {})
    pieces = range(side.whole(trimmed), MAX_PIECES)
    both = {n: (theirs.get(n, RowSum()), ours.pieces.get(n, RowSum())) for n in pieces}
    log = sum((each for each, _ in both.values()), RowSum())
    table = sum((each for _, each in both.values()), RowSum())
    doubles = ours.whole.rows - ours.distinct
    problems = [
        *([f"{doubles} duplicate rows in the table"] if doubles else []),
        *_differences(side, both),
        *_problems(side, later),
    ]
    return PartitionComparison(
        *key,
        side.first,
        side.next,
        side.span,
        log,
        table,
        ours.whole,
        doubles,
        waiting,
        tuple(problems),
    )


def _differences(side: ComparedRange, both: dict[int, tuple[RowSum, RowSum]]) -> list[str]:
    """Describe the differences of log and table and where they are."""
    missing = {n: a.rows - b.rows for n, (a, b) in both.items() if a.rows > b.rows}
    more = {n: b.rows - a.rows for n, (a, b) in both.items() if a.rows < b.rows}
    if side.compacted:
        more = {}
    other = [n for n, (a, b) in both.items() if a.rows == b.rows and a != b]
    found = [
        *([f"{sum(missing.values())} records missing from the table"] if missing else []),
        *([f"{sum(more.values())} rows more than the log has records"] if more else []),
        *(["same count, other contents"] if other else []),
    ]
    if found:
        differing = [*missing, *more, *other]
        low = side.low + min(differing) * side.step
        high = min(side.high, side.low + (max(differing) + 1) * side.step)
        found[-1] += f" (offsets {low} to {high - 1})"
    return found


def _problems(side: ComparedRange, later: CommitMetadata) -> list[str]:
    """Describe contradictions of the log and the commits."""
    found = []
    # A trimmed partition of a topic in the table may have been empty all the time.
    if side.span is None and (side.first < side.next or (side.start > 0 and not side.begun)):
        found.append("nothing of it has been archived")
    # The log was read after the table: an archiver may have trimmed after a later commit.
    archived = later.archived_range(side.part.topic, side.part.partition)
    if side.span is not None and archived is not None and archived.end < side.start:
        found.append(f"offsets {archived.end} to {side.start - 1} are in neither")
    return found


def _check_commits(
    state: CommitMetadata, later: CommitMetadata, ours: dict[Key, TableSums]
) -> tuple[int, tuple[str, ...]]:
    """Compare the table's rows with its commits, including those made during the run."""
    rows = sum(each.whole.rows for each in ours.values())
    total = sum(each.whole.checksum for each in ours.values()) % 2**64
    wrote = state.total_rows + (state.rows if state.pending else 0)
    problems = []
    if rows != wrote:
        problems.append(f"the table has {rows} rows; its commits wrote {wrote}")
    elif not state.pending and state.checksum not in (total, UNKNOWN):
        problems.append("the table's rows are not those that its commits wrote")
    for (topic, number), each in sorted(ours.items()):
        archived, known = later.archived_range(topic, number), state.archived_range(topic, number)
        if each.beyond.rows and not _is_explained(each.beyond, known, archived):
            problems.append(
                f"{topic}-{number}: {each.beyond.rows} rows are outside of what the commits say"
            )
    problems += [f"{span} was lost before it was archived" for span in state.lost]
    return rows, tuple(problems)


def _is_explained(beyond: RowSum, known: Span | None, archived: Span | None) -> bool:
    """Return whether a later commit added these rows."""
    if archived is None or beyond.first is None or beyond.last is None:
        return False
    start = archived.start if known is None else known.end
    return beyond.first >= start and beyond.last < archived.end
