"""`verify`: log and table hold the same records, partition by partition.

Rules
- Compared is what both can know: from the later of the log's first record and the table's, to the
  end of what the table says it has. What the log has forgotten is judged by the table alone.
- The table as a whole is held to its own account: as many rows, and the same sum of hashes, as
  were counted when they were written. So rows that were lost or altered later are noticed even
  where the log has forgotten them.
- The sums do not depend on the order of rows; both are made by Spark in one pass each.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from korvet.pipeline.errors import OtherLog
from korvet.pipeline.plan import reading
from korvet.pipeline.ranges import UNKNOWN, Commit, Span
from korvet.pipeline.rows import checksum, row_hash, sums
from korvet.pipeline.table import Table
from korvet.spark.catalog import Catalog, Log, Range
from korvet.spark.options import Connection, Selection


class Sum(msgspec.Struct, frozen=True):
    """Some rows of one partition, taken together."""

    rows: int = 0
    checksum: int = 0
    first: int | None = None
    last: int | None = None


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
    first: int
    next: int
    held: Span | None
    compacted: bool
    """The log lets go of records that have newer ones of their key; the table keeps them."""

    @property
    def low(self) -> int:
        """Where both begin."""
        return self.first if self.held is None else max(self.first, self.held.start)

    @property
    def high(self) -> int:
        """Where both end."""
        return self.low if self.held is None else max(self.low, min(self.next, self.held.end))


def verify(spark: Any, table: Table, connection: Connection, topics: Sequence[str]) -> Verdict:
    """The verdict."""
    state = table.state()
    with Catalog(connection) as catalog:
        sides = _sides(catalog, state, topics)
        ranges = [Range(each.part, each.low, each.high) for each in sides if each.low < each.high]
        backlog = _waiting(catalog, sides)
    ours = _sums_of_table(table.frame(), sides)
    logs = _sums_of_log(spark, connection, ranges)
    compared = tuple(_compare(each, logs, ours, backlog[n]) for n, each in enumerate(sides))
    return Verdict(compared, *_account(state, ours))


def _sides(catalog: Catalog, state: Commit, topics: Sequence[str]) -> list[_Side]:
    logs = catalog.logs(Selection(topics=tuple(topics)))
    compacted = {name for name in topics if catalog.topic(name).policy.compact}
    found = []
    for part, bound in zip(logs, catalog.bounds(logs, committed=True), strict=True):
        held = state.held(part.topic, part.partition)
        if held is not None and held.topic_id != part.topic_id:
            raise OtherLog(
                f"The table holds another topic {part.topic!r} (id {held.topic_id}) than the log "
                f"(id {part.topic_id})."
            )
        found.append(_Side(part, bound.first, bound.next, held, part.topic in compacted))
    return found


def _waiting(catalog: Catalog, sides: Sequence[_Side]) -> list[int]:
    found = []
    for each in sides:
        begin = each.first if each.held is None else max(each.first, each.held.end)
        found.append(
            catalog.count([Range(each.part, begin, each.next)])[0] if begin < each.next else 0
        )
    return found


def _sums_of_log(
    spark: Any, connection: Connection, ranges: Sequence[Range]
) -> dict[tuple[str, int], Sum]:
    from pyspark.sql import functions as f

    if not ranges:
        return {}
    options = reading(ranges) | {"redis": connection.redis, "namespace": connection.namespace}
    options["minPartitions"] = str(spark.sparkContext.defaultParallelism)
    frame = spark.read.format("korvet").options(**options).load()
    low, high = sums(row_hash())
    rows = (
        frame.groupBy("topic", "partition")
        .agg(f.count(f.lit(1)), low, high, f.min("offset"), f.max("offset"))
        .collect()
    )
    return {(r[0], r[1]): Sum(r[2], checksum(r[3], r[4]), r[5], r[6]) for r in rows}


class _Ours(msgspec.Struct, frozen=True):
    common: Sum
    whole: Sum
    distinct: int


def _sums_of_table(frame: Any, sides: Sequence[_Side]) -> dict[tuple[str, int], _Ours]:
    """Per partition: the rows of the common range, all rows, and how many offsets there are."""
    from pyspark.sql import functions as f

    common = f.lit(False)
    for each in sides:
        if each.low < each.high:
            common = common | (
                (f.col("topic") == each.part.topic)
                & (f.col("partition") == each.part.partition)
                & (f.col("offset") >= each.low)
                & (f.col("offset") < each.high)
            )
    # Rows with one offset fall together first: what is left to add up has no duplicates.
    hashed = f.col("hash")
    inner = (
        frame.select("topic", "partition", "offset", row_hash().alias("hash"), common.alias("both"))
        .groupBy("topic", "partition", "offset")
        .agg(
            f.count(f.lit(1)).alias("n"),
            sums(hashed)[0].alias("low"),
            sums(hashed)[1].alias("high"),
            f.first("both").alias("both"),
        )
    )
    both = f.col("both")
    rows = (
        inner.groupBy("topic", "partition")
        .agg(
            f.sum(f.when(both, f.col("n"))),
            f.sum(f.when(both, f.col("low"))),
            f.sum(f.when(both, f.col("high"))),
            f.min(f.when(both, f.col("offset"))),
            f.max(f.when(both, f.col("offset"))),
            f.sum("n"),
            f.sum("low"),
            f.sum("high"),
            f.min("offset"),
            f.max("offset"),
            f.count(f.lit(1)),
        )
        .collect()
    )
    return {
        (r[0], r[1]): _Ours(
            Sum(r[2] or 0, checksum(r[3], r[4]), r[5], r[6]),
            Sum(r[7], checksum(r[8], r[9]), r[10], r[11]),
            r[12],
        )
        for r in rows
    }


def _compare(
    side: _Side,
    logs: dict[tuple[str, int], Sum],
    tables: dict[tuple[str, int], _Ours],
    waiting: int,
) -> Compared:
    key = (side.part.topic, side.part.partition)
    theirs = logs.get(key, Sum())
    ours = tables.get(key, _Ours(Sum(), Sum(), 0))
    doubles = ours.whole.rows - ours.distinct
    return Compared(
        *key,
        side.first,
        side.next,
        side.held,
        theirs,
        ours.common,
        ours.whole,
        doubles,
        waiting,
        tuple(_problems(side, theirs, ours, doubles)),
    )


def _problems(side: _Side, theirs: Sum, ours: _Ours, doubles: int) -> list[str]:
    found = []
    if doubles:
        found.append(f"{doubles} duplicate rows in the table")
    if ours.common.rows < theirs.rows:
        found.append(f"{theirs.rows - ours.common.rows} records missing from the table")
    if ours.common.rows > theirs.rows and not side.compacted:
        found.append(f"{ours.common.rows - theirs.rows} rows more than the log has records")
    if ours.common.rows == theirs.rows and ours.common.checksum != theirs.checksum:
        found.append("same count, other contents")
    held, whole = side.held, ours.whole
    if held is None and side.first < side.next:
        found.append("nothing of it has been archived")
    if held is None and whole.rows:
        found.append("the table has rows of it, but no commit speaks of them")
    if held is not None and whole.first is not None and whole.last is not None:
        if whole.first < held.start or whole.last >= held.end:
            found.append(f"rows outside of what the commits say ({held})")
        if held.end < side.first and side.next > side.first:
            found.append(f"offsets {held.end} to {side.first - 1} are in neither")
    return found


def _account(state: Commit, ours: dict[tuple[str, int], _Ours]) -> tuple[int, tuple[str, ...]]:
    rows = sum(each.whole.rows for each in ours.values())
    total = sum(each.whole.checksum for each in ours.values()) % 2**64
    problems = []
    if rows != state.total_rows:
        problems.append(f"the table has {rows} rows; its commits wrote {state.total_rows}")
    elif state.checksum not in (total, UNKNOWN):
        problems.append("the table's rows are not those that its commits wrote")
    problems += [f"{span} was lost before it was archived" for span in state.lost]
    return rows, tuple(problems)
