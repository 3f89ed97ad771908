"""`verify`: log and table hold the same records, partition by partition.

Rules
- Compared is what both can know: from the later of the log's first record and the table's, to the
  end of what the table says it has. What the log has forgotten is judged by the table alone.
- The table as a whole is held to its own account: as many rows, and the same sum of hashes, as
  were counted when they were written. So rows that were lost or altered later are noticed even
  where the log has forgotten them.
- The sums do not depend on the order of rows; both are made by Spark in one pass each, in pieces
  of each partition's range. A piece that a trim reached while the log was read is judged by the
  table's account instead, and rows of later commits are left for the next time: so an archiver may
  go on meanwhile.
- Native entries without a time have, where ids tell none, that of the moment of reading: in topics
  with such entries times are judged by the table's account alone.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from korvet.pipeline.errors import OtherLog
from korvet.pipeline.plan import had_natives, reading
from korvet.pipeline.ranges import UNKNOWN, Commit, Span
from korvet.pipeline.rows import checksum, exact_hash, row_hash, sums, within
from korvet.pipeline.table import Table
from korvet.spark.catalog import Catalog, Log, Range
from korvet.spark.options import Connection, Selection

PIECES = 64
"""Into so many pieces goes what is compared of a partition."""


class Sum(msgspec.Struct, frozen=True):
    """Some rows of one partition, taken together."""

    rows: int = 0
    checksum: int = 0
    first: int | None = None
    last: int | None = None

    def __add__(self, other: "Sum") -> "Sum":
        firsts = [each for each in (self.first, other.first) if each is not None]
        lasts = [each for each in (self.last, other.last) if each is not None]
        return Sum(
            self.rows + other.rows,
            (self.checksum + other.checksum) % 2**64,
            min(firsts, default=None),
            max(lasts, default=None),
        )


class Compared(msgspec.Struct, frozen=True):
    """One partition: the log's side, the table's side, and what is wrong."""

    topic: str
    partition: int
    log_first: int
    log_next: int
    held: Span | None
    log: Sum
    table: Sum
    """Of the range that both have."""
    whole: Sum
    """Of all the table's rows."""
    duplicates: int
    waiting: int
    problems: tuple[str, ...]


class Verdict(msgspec.Struct, frozen=True):
    """All partitions, and the table against its own account."""

    partitions: tuple[Compared, ...]
    rows: int
    problems: tuple[str, ...]

    @property
    def equal(self) -> bool:
        """Whether nothing is wrong anywhere."""
        return not self.problems and not any(each.problems for each in self.partitions)


class _Side(msgspec.Struct, frozen=True):
    part: Log
    start: int
    """What lies before has left the log; `first` is a record, or `next`."""
    first: int
    next: int
    held: Span | None
    begun: bool
    """The table has some partition of the topic."""
    compacted: bool
    """The log lets go of records that have newer ones of their key; the table keeps them."""
    untimed: bool
    """There may be records whose time is that of their reading."""

    @property
    def low(self) -> int:
        """Where both begin."""
        return self.first if self.held is None else max(self.first, self.held.start)

    @property
    def high(self) -> int:
        """Where both end."""
        return self.low if self.held is None else max(self.low, min(self.next, self.held.end))

    @property
    def step(self) -> int:
        """How many offsets a piece has."""
        return max(1, -(-(self.high - self.low) // PIECES))

    def whole(self, first: int) -> int:
        """The first piece that has not begun before `first`."""
        return max(0, -(-(first - self.low) // self.step))


def verify(spark: Any, table: Table, connection: Connection, topics: Sequence[str]) -> Verdict:
    """The verdict."""
    state = table.state()
    with Catalog(connection) as catalog:
        sides = _sides(catalog, state, topics)
        catalog.patient()
        backlog = _waiting(catalog, sides)
        logs = _sums_of_log(spark, connection, sides)
        trimmed = [bound.first for bound in catalog.bounds([each.part for each in sides])]
    ours = _sums_of_table(table.frame(), sides, state)
    later = table.state()
    compared = tuple(
        _compare(each, logs, ours, later, first, waiting)
        for each, first, waiting in zip(sides, trimmed, backlog, strict=True)
    )
    return Verdict(compared, *_account(state, later, ours))


def _sides(catalog: Catalog, state: Commit, topics: Sequence[str]) -> list[_Side]:
    logs = catalog.logs(Selection(topics=tuple(topics)))
    compacted = {name for name in topics if catalog.topic(name).policy.compact}
    begun = {span.topic for span in state.archived}
    found = []
    appended = _appended(catalog, logs)
    bounds = catalog.bounds(logs, committed=True)
    for part, bound, entries in zip(logs, bounds, appended, strict=True):
        held = state.held(part.topic, part.partition)
        if held is not None and held.topic_id != part.topic_id:
            raise OtherLog(
                f"The table holds another topic {part.topic!r} (id {held.topic_id}) than the log "
                f"(id {part.topic_id})."
            )
        found.append(
            _Side(
                part,
                bound.start,
                bound.first,
                bound.next,
                held,
                part.topic in begun,
                part.topic in compacted,
                had_natives(part, bound.end, entries),
            )
        )
    return found


def _appended(catalog: Catalog, logs: Sequence[Log]) -> list[int]:
    """How many entries were ever appended to each log; those of others do not count."""
    names = [catalog.keys.partition(part.topic, part.partition) for part in logs]
    found = catalog.store.commands([("HGET", each.log, "entries") for each in names])
    return [int(entries or 0) for entries in found]


def _untimed_topics(sides: Sequence[_Side]) -> list[str]:
    return sorted({each.part.topic for each in sides if each.untimed})


def _waiting(catalog: Catalog, sides: Sequence[_Side]) -> list[int]:
    found = []
    for each in sides:
        begin = each.first if each.held is None else max(each.first, each.held.end)
        found.append(
            catalog.count([Range(each.part, begin, each.next)])[0] if begin < each.next else 0
        )
    return found


_Key = tuple[str, int]


def _sums_of_log(
    spark: Any, connection: Connection, sides: Sequence[_Side]
) -> dict[_Key, dict[int, Sum]]:
    """Per partition, the records of each piece that both have."""
    from pyspark.sql import functions as f

    ranges = [Range(each.part, each.low, each.high) for each in sides if each.low < each.high]
    if not ranges:
        return {}
    options = reading(ranges) | {"redis": connection.redis, "namespace": connection.namespace}
    options["minPartitions"] = str(spark.sparkContext.defaultParallelism)
    options["joinPartitions"] = "true"
    options["failOnDataLoss"] = "false"
    frame = spark.read.format("korvet").options(**options).load()
    rows = (
        frame.groupBy("topic", "partition", _piece(sides).alias("piece"))
        .agg(f.count(f.lit(1)), *_edges(), *sums(exact_hash(_untimed_topics(sides))))
        .collect()
    )
    found: dict[_Key, dict[int, Sum]] = {}
    for topic, number, piece, count, first, last, *hashes in rows:
        if piece is not None:
            sum_ = Sum(count, checksum(*hashes), first, last)
            found.setdefault((topic, number), {})[piece] = sum_
    return found


def _piece(sides: Sequence[_Side]) -> Any:
    """The piece of its partition that a row belongs to; null outside of what is compared."""
    from pyspark.sql import functions as f

    found = [f.lit(None).cast("bigint")]
    for each in sides:
        if each.low < each.high:
            span = Span(each.part.topic, each.part.partition, "", each.low, each.high)
            number = f.expr(f"(offset - {each.low}) div {each.step}")
            found.append(f.when(within([span]), number))
    return f.coalesce(*found)


class _Ours(msgspec.Struct, frozen=True):
    pieces: dict[int, Sum]
    """Of exact hashes, as the log's; the other sums are of the hashes that the table's account is
    kept in."""
    whole: Sum
    """All rows that the state knows of."""
    beyond: Sum
    """Rows that it does not."""
    distinct: int


def _sums_of_table(frame: Any, sides: Sequence[_Side], state: Commit) -> dict[_Key, _Ours]:
    """Per partition: the rows of each piece, of all, and how many offsets there are."""
    from pyspark.sql import functions as f

    # Rows with one offset fall together first: what is left to add up has no duplicates.
    hashes = [*sums(f.col("kept")), *sums(f.col("exact"))]
    names = [f"hash{n}" for n in range(len(hashes))]
    inner = (
        frame.select(
            "topic",
            "partition",
            "offset",
            row_hash().alias("kept"),
            exact_hash(_untimed_topics(sides)).alias("exact"),
        )
        .groupBy("topic", "partition", "offset")
        .agg(
            f.count(f.lit(1)).alias("n"),
            *(each.alias(name) for each, name in zip(hashes, names, strict=True)),
        )
        .withColumn("known", within(state.archived))
        .withColumn("piece", _piece(sides))
    )
    rows = (
        inner.groupBy("topic", "partition", "known", "piece")
        .agg(f.count(f.lit(1)), f.sum("n"), *_edges(), *(f.sum(name) for name in names))
        .collect()
    )
    found: dict[_Key, _Ours] = {}
    for topic, number, known, piece, distinct, count, first, last, *parts in rows:
        before, half = found.get((topic, number), _NONE), len(parts) // 2
        kept = Sum(count, checksum(*parts[:half]), first, last)
        if not known:
            after = msgspec.structs.replace(before, beyond=before.beyond + kept)
        else:
            exact = Sum(count, checksum(*parts[half:]), first, last)
            pieces = before.pieces if piece is None else {**before.pieces, piece: exact}
            after = _Ours(pieces, before.whole + kept, before.beyond, before.distinct + distinct)
        found[topic, number] = after
    return found


def _edges() -> tuple[Any, Any]:
    from pyspark.sql import functions as f

    return f.min("offset"), f.max("offset")


_NONE = _Ours({}, Sum(), Sum(), 0)


def _compare(
    side: _Side,
    logs: dict[_Key, dict[int, Sum]],
    tables: dict[_Key, _Ours],
    later: Commit,
    trimmed: int,
    waiting: int,
) -> Compared:
    key = (side.part.topic, side.part.partition)
    ours = tables.get(key, _NONE)
    theirs, first = logs.get(key, {}), side.whole(trimmed)
    pieces = range(first, PIECES)
    log = sum((theirs.get(n, Sum()) for n in pieces), Sum())
    table = sum((ours.pieces.get(n, Sum()) for n in pieces), Sum())
    both = {n: (theirs.get(n, Sum()), ours.pieces.get(n, Sum())) for n in pieces}
    doubles = ours.whole.rows - ours.distinct
    problems = [
        *([f"{doubles} duplicate rows in the table"] if doubles else []),
        *_differences(side, both),
        *_problems(side, later),
    ]
    return Compared(
        *key,
        side.first,
        side.next,
        side.held,
        log,
        table,
        ours.whole,
        doubles,
        waiting,
        tuple(problems),
    )


def _differences(side: _Side, both: dict[int, tuple[Sum, Sum]]) -> list[str]:
    """What differs between log and table, piece by piece, and where."""
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


def _problems(side: _Side, later: Commit) -> list[str]:
    """What the log and the commits say that cannot be true together."""
    found = []
    # Of a topic that the table has, a partition that was trimmed may have been so all the time.
    if side.held is None and (side.first < side.next or (side.start > 0 and not side.begun)):
        found.append("nothing of it has been archived")
    # The log was asked after the table: an archiver may have trimmed behind a later commit.
    held = later.held(side.part.topic, side.part.partition)
    if side.held is not None and held is not None and held.end < side.start:
        found.append(f"offsets {held.end} to {side.start - 1} are in neither")
    return found


def _account(state: Commit, later: Commit, ours: dict[_Key, _Ours]) -> tuple[int, tuple[str, ...]]:
    """The table against what its commits say: those when we began, and those since."""
    rows = sum(each.whole.rows for each in ours.values())
    total = sum(each.whole.checksum for each in ours.values()) % 2**64
    wrote = state.total_rows + (state.rows if state.pending else 0)
    problems = []
    if rows != wrote:
        problems.append(f"the table has {rows} rows; its commits wrote {wrote}")
    elif not state.pending and state.checksum not in (total, UNKNOWN):
        problems.append("the table's rows are not those that its commits wrote")
    for (topic, number), each in sorted(ours.items()):
        held, known = later.held(topic, number), state.held(topic, number)
        if each.beyond.rows and not _explained(each.beyond, known, held):
            problems.append(
                f"{topic}-{number}: {each.beyond.rows} rows are outside of what the commits say"
            )
    problems += [f"{span} was lost before it was archived" for span in state.lost]
    return rows, tuple(problems)


def _explained(beyond: Sum, known: Span | None, held: Span | None) -> bool:
    """Whether a later commit has added these rows."""
    if held is None or beyond.first is None or beyond.last is None:
        return False
    return beyond.first >= (held.start if known is None else known.end) and beyond.last < held.end
