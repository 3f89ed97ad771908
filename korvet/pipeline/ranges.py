"""What a table says about the log: which offsets of which partitions it holds.

Rules
- A span is half open: it holds every record with start <= offset < end that the log had.
- The spans of one partition follow one another: each begins where the one before it ends. Where
  offsets were lost and the operator said to go on, a span says so (`lost`).
- An empty span says from where on a partition is archived: one that had nothing yet when its topic
  was first archived, or that has to wait for a later commit. What leaves the log behind it is lost.
- Where the log has others in place of records that the table has, the span that says so (`lost`)
  is the last offset of the one before it.
- Every commit repeats the whole state, so that the newest commit alone tells it.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property

import msgspec

FORMAT = 1
UNKNOWN = -1
"""A sum of hashes that nobody keeps: tasks ran twice, and their rows were counted twice."""


class Span(msgspec.Struct, frozen=True, order=True):
    """Offsets of one partition: from `start` on, before `end`."""

    topic: str
    partition: int
    topic_id: str
    start: int
    end: int
    lost: bool = False
    mark: str = ""
    """What the log had at its last offset (see korvet.spark.marks); nothing where nobody knows,
    as in all tables of before."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


class Commit(msgspec.Struct, frozen=True, dict=True):
    """What one commit of a table says: its own part, and the state behind it."""

    number: int
    """1, 2, 3, ...: two commits with one number cannot both succeed."""
    id: str
    """Nobody else's: whoever reads it back knows that their own commit has won."""
    spans: tuple[Span, ...]
    """What this commit adds."""
    archived: tuple[Span, ...]
    """All that the table holds, one span a partition."""
    rows: int
    """So many rows it adds."""
    total_rows: int
    checksum: int
    """The sum of the hashes of all rows in the table, modulo 2**64, or UNKNOWN."""
    values: str = "bytes"
    """How values become columns."""
    lost: tuple[Span, ...] = ()
    """Offsets that left the log before they were archived, and were given up by order."""
    columns: str = ""
    """The schema of the typed columns, as Spark's JSON."""
    format: int = FORMAT
    partitions: dict[str, int] = {}
    """How many partitions the topics had at their last commit: `archived` names all of those, and
    any others have come since. Nothing of topics that were archived before this was kept."""
    pending: bool = False
    """`total_rows` and `checksum` do not know the commit's own rows yet: see Table.settle."""

    def held(self, topic: str, partition: int) -> Span | None:
        """What the table holds of the partition."""
        return self._spans.get((topic, partition))

    @cached_property
    def _spans(self) -> dict[tuple[str, int], Span]:
        return {(span.topic, span.partition): span for span in self.archived}


NOTHING = Commit(0, "", (), (), 0, 0, 0)


def encode(commit: Commit) -> str:
    """The commit as JSON."""
    return msgspec.json.encode(commit).decode()


def decode(text: str | bytes) -> Commit:
    """The commit of this JSON; msgspec.DecodeError for anything else."""
    return msgspec.json.decode(text, type=Commit)


def followed(before: Commit, spans: Sequence[Span], **more: object) -> Commit:
    """The commit that adds these spans to what was there; rows are not counted yet."""
    number = before.number + 1
    fresh = msgspec.structs.replace(
        before,
        number=number,
        spans=tuple(spans),
        archived=joined([*before.archived, *spans]),
        lost=(*before.lost, *(span for span in spans if span.lost)),
        rows=0,
        pending=False,
    )
    return msgspec.structs.replace(fresh, **more)


def grown(before: Commit, planned: Commit, rows: int, seen: int, added: int) -> Commit:
    """The planned commit with its rows; the sum of hashes is only known if all were seen once."""
    known = seen == rows and before.checksum != UNKNOWN
    return msgspec.structs.replace(
        planned,
        rows=rows,
        total_rows=before.total_rows + rows,
        checksum=(before.checksum + added) % 2**64 if known else UNKNOWN,
        pending=False,
    )


def joined(spans: Iterable[Span]) -> tuple[Span, ...]:
    """One span a partition, from the first start to the last end."""
    found: dict[tuple[str, int], Span] = {}
    for span in sorted(spans):
        key = (span.topic, span.partition)
        known = found.get(key)
        plain = msgspec.structs.replace(span, lost=False)
        if known is None:
            found[key] = plain
        else:
            found[key] = msgspec.structs.replace(plain, start=known.start)
    return tuple(found.values())
