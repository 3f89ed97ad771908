"""Check the differences that verify detects, and the concurrent changes that it allows."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from korvet.spark.pipeline import delta_table
from korvet.spark.pipeline import verify as module
from korvet.spark.pipeline.archive import open_table
from korvet.spark.pipeline.commit_metadata import UNKNOWN, CommitMetadata, next_commit
from korvet.spark.pipeline.row_hash import checksum, partial_sums
from korvet.spark.pipeline.table import ArchiveTable
from korvet.spark.pipeline.table_location import TableLocation
from korvet.topics.table import Topic
from tests.spark.pipeline.conftest import archive, location_for, new_table, verify
from tests.spark.topic_log import Log, begun, forgotten, plain

# Py4J closes its sockets only when they are garbage-collected.
pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]

NOT_THOSE = "the table's rows are not those that its commits wrote"


@pytest.fixture
def topic(log: Log) -> Iterator[Topic]:
    """A topic of two partitions with 200 records each."""
    made = log.create("orders", 2, "batch", "dense")
    for number in range(2):
        log.append(made, number, plain(200))
    yield made


def alter(spark: Any, location: TableLocation) -> None:
    """Change the value of one record in the table."""
    if location.format != "parquet":
        mine = "partition = 1 AND offset = 7"
        rows = spark.table(location.sql)
        value = f"IF({mine}, X'00', value) AS value"
        names = [value if name == "value" else name for name in rows.columns]
        if location.format == "delta":
            spark.sql(f"UPDATE {location.sql} SET value = X'00' WHERE {mine}")
        else:
            rows.selectExpr(*names).writeTo(location.sql).overwritePartitions()
        return
    for file in Path(location.path, "data").rglob("*.parquet"):
        rows = pq.read_table(file, partitioning=None)
        mine = pc.and_(pc.equal(rows["partition"], 1), pc.equal(rows["offset"], 7))
        values = pc.if_else(mine, pa.scalar(b"\0", pa.binary()), rows["value"])
        at = rows.column_names.index("value")
        pq.write_table(rows.set_column(at, "value", values), file)
        file.with_name(f".{file.name}.crc").unlink()


@pytest.mark.parametrize("format", ["parquet", "delta", "iceberg"])
def test_a_row_changed_after_its_record_was_trimmed_is_noticed(
    spark: Any, log: Log, topic: Topic, tmp_path: Path, format: str
) -> None:
    location = location_for(spark, tmp_path, format)
    table = open_table(spark, location, "bytes")
    archive(spark, log, table, trim_older_ms=0)
    assert log.store.command("XLEN", "korvet:orders:1") == 0
    assert verify(spark, log, table).equal
    alter(spark, location)
    verdict = verify(spark, log, open_table(spark, location))
    assert verdict.problems == (NOT_THOSE,)


def test_differences_are_reported_with_their_offsets(
    spark: Any, log: Log, topic: Topic, tmp_path: Path
) -> None:
    location = location_for(spark, tmp_path, "parquet")
    table = open_table(spark, location, "bytes")
    archive(spark, log, table)
    alter(spark, location)
    verdict = verify(spark, log, table)
    problems = [each.problems for each in verdict.partitions]
    assert problems == [(), ("same count, other contents (offsets 4 to 7)",)]


def test_records_that_redis_lost_stay_in_the_table_and_are_a_difference(
    spark: Any, log: Log, topic: Topic, tmp_path: Path
) -> None:
    table = new_table(spark, tmp_path)
    with forgotten(log):
        log.append(topic, 0, plain(5))
        assert archive(spark, log, table) == 405
    begun(log, topic, 205)
    log.append(topic, 0, plain(7))
    assert archive(spark, log, table) == 7
    assert table.frame().where("partition = 0").count() == 212
    verdict = verify(spark, log, table)
    said = [each.problems for each in verdict.partitions]
    assert "5 rows more than the log has records" in said[0][0] and said[1] == ()


def test_a_pending_delta_commit_is_settled_by_the_next_run(
    spark: Any, log: Log, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = location_for(spark, tmp_path, "delta")
    table = open_table(spark, location, "bytes")
    # Some runtimes of Delta cannot read their own checkpoints on some Sparks.
    spark.sql(f"ALTER TABLE {location.sql} SET TBLPROPERTIES ('delta.checkpointInterval' = '1')")

    def dying(
        self: delta_table.DeltaTable, state: CommitMetadata, recounted: Any
    ) -> CommitMetadata:
        if state.pending:
            raise KeyboardInterrupt
        return state

    with monkeypatch.context() as patch:
        patch.setattr(delta_table.DeltaTable, "settle", dying)
        with pytest.raises(KeyboardInterrupt):
            archive(spark, log, table)
    state = table.state()
    assert state.pending and (state.rows, state.total_rows) == (400, 0)
    verdict = verify(spark, log, table)
    assert verdict.equal and verdict.rows == 400
    assert archive(spark, log, table) == 0
    state = table.state()
    assert not state.pending and state.total_rows == 400 and state.checksum != UNKNOWN
    history = spark.sql(f"DESCRIBE HISTORY {location.sql}").select(*delta_table._HISTORY).collect()
    assert list(table._history(None)) == [tuple(row) for row in history]
    assert list(table._history(1)) == [tuple(history[0])]
    assert verify(spark, log, table).equal


Meanwhile = Callable[[], object]


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Meanwhile]]:
    """Run an action between planning and reading of verify."""
    events: list[Meanwhile] = []
    honest = module._waiting

    def waiting(*arguments: Any) -> Any:
        found = honest(*arguments)
        while events:
            events.pop()()
        return found

    monkeypatch.setattr(module, "_waiting", waiting)
    yield events


def test_a_concurrent_trim_and_commit_are_no_difference(
    spark: Any, log: Log, topic: Topic, tmp_path: Path, meanwhile: list[Meanwhile]
) -> None:
    table = new_table(spark, tmp_path)
    archive(spark, log, table)

    def change() -> None:
        log.append(topic, 1, plain(30))
        archive(spark, log, table)
        log.truncate(topic, 0, 90)
        log.truncate(topic, 1, 200)

    meanwhile.append(change)
    verdict = verify(spark, log, table)
    assert verdict.equal, verdict
    # Pieces have four offsets each; the piece that the trim reached is not compared.
    assert [each.log.rows for each in verdict.partitions] == [200 - 92, 0]
    assert verdict.rows == 400


def test_a_trim_after_a_later_commit_is_no_gap(
    spark: Any, log: Log, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(spark, tmp_path)
    archive(spark, log, table)
    honest = module._compared_ranges

    def late(*arguments: Any) -> Any:
        log.append(topic, 1, plain(30))
        archive(spark, log, table)
        log.truncate(topic, 1, 210)
        return honest(*arguments)

    monkeypatch.setattr(module, "_compared_ranges", late)
    verdict = verify(spark, log, table)
    assert verdict.equal, verdict
    assert [each.log.rows for each in verdict.partitions] == [200, 0]


def test_a_gap_between_table_and_log_is_a_difference_only_if_records_were_trimmed(
    spark: Any, log: Log, tmp_path: Path
) -> None:
    topic = log.create("orders", 1, "record", "time", records=10)
    table = new_table(spark, tmp_path)
    archive(spark, log, table, trim_older_ms=0)
    for since in (1_700_000_100_000, 1_700_000_200_000):
        log.append(topic, 0, plain(10, since=since))
    assert verify(spark, log, table).equal
    log.truncate(topic, 0, log.written["orders", 0][-5][0])
    [found] = verify(spark, log, table).partitions
    [problem] = found.problems
    assert problem.endswith("are in neither")


def test_rows_outside_of_all_commits_are_a_difference(
    spark: Any, log: Log, topic: Topic, tmp_path: Path
) -> None:
    from pyspark.sql import functions as f

    table = new_table(spark, tmp_path)
    archive(spark, log, table)
    state = table.state()
    stray = table.frame().limit(1).withColumn("offset", f.lit(1_000_000).cast("bigint"))
    table.append(stray, state, next_commit(state, [], id="x"), lambda: (1, 7))
    verdict = verify(spark, log, table)
    assert any("1 rows are outside of what the commits say" in each for each in verdict.problems)


def test_a_topic_that_left_the_log_unarchived_is_not_equal(
    spark: Any, log: Log, topic: Topic, tmp_path: Path
) -> None:
    table = new_table(spark, tmp_path)
    archive(spark, log, table)
    other = log.create("payments", 1)
    assert verify(spark, log, table, "payments").equal
    log.append(other, 0, plain(10))
    log.truncate(other, 0, 10)
    [found] = verify(spark, log, table, "payments").partitions
    assert found.problems == ("nothing of it has been archived",)


def test_a_partition_that_was_empty_at_first_waits_and_is_no_difference(
    spark: Any, log: Log, tmp_path: Path
) -> None:
    made = log.create("orders", 2, records=10)
    table = new_table(spark, tmp_path)
    archive(spark, log, table)
    log.append(made, 1, plain(10))
    verdict = verify(spark, log, table)
    assert verdict.equal and [each.waiting for each in verdict.partitions] == [0, 10]
    log.truncate(made, 1, 5)
    verdict = verify(spark, log, table)
    assert verdict.partitions[1].problems == ("offsets 0 to 4 are in neither",)


def copied(spark: Any, path: Path, table: ArchiveTable, rows: Any) -> ArchiveTable:
    """Return another table with the metadata of this one but these rows and an unknown checksum."""
    copy = open_table(spark, location_for(spark, path / "copy", "parquet"), "bytes")
    planned = next_commit(copy.state(), table.state().archived, id="x")
    copy.append(rows, copy.state(), planned, zero)
    return copy


def zero() -> tuple[int, int]:
    """Report unknown counts."""
    return 0, 0


def test_equal_hashes_differ_by_timestamp_type_and_null_headers(
    spark: Any, log: Log, tmp_path: Path
) -> None:
    made = log.create("orders", 1, "batch")
    bare = [("a", None), ("b", None)]
    log.append(made, 0, [(n, 1_700_000_000_000, b"k", b"v", bare) for n in range(100)])
    table = new_table(spark, tmp_path)
    archive(spark, log, table)
    frame = table.frame()
    one = "offset = 70"
    joined = "ARRAY(NAMED_STRUCT('key', 'a', 'value', X'62'))"
    for name, value in (("headers", joined), ("timestampType", "1")):
        wrong = f"IF({one}, {value}, {name}) AS {name}"
        rows = frame.selectExpr(*(wrong if each == name else each for each in frame.columns))
        copy = copied(spark, tmp_path / name, table, rows)
        [found] = verify(spark, log, copy).partitions
        assert found.problems == ("same count, other contents (offsets 70 to 71)",)


def test_compacted_records_hide_no_record_missing_from_the_table(
    spark: Any, log: Log, tmp_path: Path
) -> None:
    log.create("orders", 1, cleanup_policy="compact", records=128)
    table = new_table(spark, tmp_path)
    archive(spark, log, table)
    for offset in range(100, 105):
        log.store.command("XDEL", "korvet:orders:0", f"9223372036854775807-{offset}")
    assert verify(spark, log, table).equal
    copy = copied(spark, tmp_path, table, table.frame().where("offset <> 3"))
    [found] = verify(spark, log, copy).partitions
    assert found.problems == ("1 records missing from the table (offsets 2 to 3)",)


def test_sums_of_hashes_leave_room_for_years_of_rows(spark: Any) -> None:
    rows = spark.createDataFrame([(-1,), (5,), (-(2**63),)], "hash BIGINT")
    [parts] = rows.agg(*partial_sums(rows["hash"])).collect()
    assert all(0 <= part < 3 << 22 for part in parts)
    assert checksum(*parts) == (-1 + 5 - 2**63) % 2**64
    assert checksum(*(None for _ in parts)) == 0


def test_foreign_records_without_a_time_compare_equal_at_any_time(
    spark: Any, log: Log, tmp_path: Path
) -> None:
    topic = log.create("orders", 1, "record", "dense", records=20)
    for _ in range(3):
        log.store.command("XADD", "korvet:orders:0", "*", "value", "native")
    log.append(topic, 0, plain(20))
    location = location_for(spark, tmp_path, "parquet")
    table = open_table(spark, location, "bytes")
    archive(spark, log, table)
    verdict = verify(spark, log, table)
    assert (verdict.equal, verdict.rows) == (True, 43)
    log.store.command("XDEL", "korvet:orders:0", "9223372036854775807-25")
    assert not verify(spark, log, table).equal
