"""The metadata of a commit: which offsets of which partitions the table holds.

Rules
- A span is half open: it has every record of the log with start <= offset < end.
- Spans of one partition are contiguous. Offsets that were lost, and skipped by order of the user,
  are in a span with `lost`.
- An empty span records where archiving of a partition starts if the commit has none of its records.
  Records that the log loses above it are then noticed.
- If the log reused offsets of records in the table, the last of them is in a `lost` span.
- Every commit has the whole state: the newest commit suffices.
"""

import zlib
from collections.abc import Iterable, Sequence
from functools import cached_property

import msgspec

from korvet.spark.tiered.archive_table import ArchivedRange, CommitPointer

FORMAT = 1
UNKNOWN = -1
"""The checksum is unknown because tasks ran twice and counted their rows twice."""


class Span(ArchivedRange, frozen=True, order=True):
    """A range of a commit."""

    lost: bool = False
    fingerprint: str = ""
    """Hash of the entry at its last offset, see korvet.spark.plan.tail_fingerprint."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


class CommitMetadata(msgspec.Struct, frozen=True, dict=True):
    """A commit of a table: what it adds, and the state after it."""

    number: int
    """1, 2, 3, ...: of two commits with one number only one can succeed."""
    id: str
    """Unique: an archiver that reads it back knows that its own commit succeeded."""
    spans: tuple[Span, ...]
    """Offsets that this commit adds."""
    archived: tuple[Span, ...]
    """Offsets that the table holds, one span per partition."""
    rows: int
    """Rows that this commit adds."""
    total_rows: int
    checksum: int
    """The sum of the hashes of all rows in the table, modulo 2**64, or UNKNOWN."""
    values: str = "bytes"
    """Mode of the typed columns."""
    lost: tuple[Span, ...] = ()
    """Offsets that were removed before they were archived, and skipped by order of the user."""
    columns: str = ""
    """The schema of the typed columns as Spark's JSON."""
    format: int = FORMAT
    partitions: dict[str, int] = {}
    """Partition count by topic at its last commit. `archived` names all of these: a partition above
    the count was added later."""
    pending: bool = False
    """Whether `total_rows` and `checksum` lack the commit's own rows: see ArchiveTable.settle."""

    def archived_range(self, topic: str, partition: int) -> Span | None:
        """Return the span that the table holds of the partition."""
        return self._spans.get((topic, partition))

    @cached_property
    def _spans(self) -> dict[tuple[str, int], Span]:
        return {(span.topic, span.partition): span for span in self.archived}


EMPTY = CommitMetadata(0, "", (), (), 0, 0, 0)


def encode(commit: CommitMetadata) -> str:
    """Return the commit as JSON."""
    return msgspec.json.encode(commit).decode()


def decode(text: str | bytes) -> CommitMetadata:
    """Parse a commit from JSON; raise msgspec.DecodeError for anything else."""
    return msgspec.json.decode(text, type=CommitMetadata)


def pointer_to(commit: CommitMetadata) -> CommitPointer:
    """Return what a commit of Delta or Iceberg has itself."""
    name = f"{commit.number:08d}-{commit.id}"
    return CommitPointer(
        commit.number, commit.id, commit.rows, commit.total_rows, commit.checksum, name
    )


def state_file(commit: CommitMetadata) -> bytes:
    """Return the bytes of the file that has the commit's whole state."""
    return zlib.compress(encode(commit).encode())


def next_commit(before: CommitMetadata, spans: Sequence[Span], **more: object) -> CommitMetadata:
    """Return the commit that adds these spans, without its row counts."""
    fresh = msgspec.structs.replace(
        before,
        number=before.number + 1,
        spans=tuple(spans),
        archived=merge_spans([*before.archived, *spans]),
        lost=(*before.lost, *(span for span in spans if span.lost)),
        rows=0,
        pending=False,
    )
    return msgspec.structs.replace(fresh, **more)


def with_rows(
    before: CommitMetadata, planned: CommitMetadata, rows: int, seen: int, added: int
) -> CommitMetadata:
    """Return the planned commit with its rows; the checksum is UNKNOWN unless `seen` == `rows`."""
    known = seen == rows and before.checksum != UNKNOWN
    return msgspec.structs.replace(
        planned,
        rows=rows,
        total_rows=before.total_rows + rows,
        checksum=(before.checksum + added) % 2**64 if known else UNKNOWN,
        pending=False,
    )


def merge_spans(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Return one span per partition, from the first start to the last end."""
    found: dict[tuple[str, int], Span] = {}
    for span in sorted(spans):
        key = (span.topic, span.partition)
        start = found[key].start if key in found else span.start
        found[key] = msgspec.structs.replace(span, lost=False, start=start)
    return tuple(found.values())
