"""Check commits of an Iceberg archive, and commits by others between their steps."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from korvet.spark.pipeline.commit_metadata import CommitMetadata, Span, next_commit
from korvet.spark.pipeline.errors import ConcurrentCommit
from korvet.spark.pipeline.table import ArchiveTable
from korvet.spark.tiered.archive_table import STATES, SUMMARY
from tests.spark.pipeline.conftest import archive, new_table, verify
from tests.spark.topic_log import Log, plain

# Py4J closes its sockets only when they are garbage-collected.
pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def table(spark: Any, log: Log, tmp_path: Path) -> Iterator[ArchiveTable]:
    """A table that has five of a topic's eleven records."""
    topic = log.create("orders", 1, "record", "dense", records=5)
    made = new_table(spark, tmp_path, "iceberg")
    archive(spark, log, made)
    log.append(topic, 0, plain(6))
    yield made


def metadata_files(table: Any) -> set[str]:
    return {each.name for each in Path(table._location.path, "metadata").glob("*.metadata.json")}


def state_files(table: Any) -> list[str]:
    """Return the names of the state files, without those of Hadoop's checksums."""
    names = (each.name for each in Path(table._location.path, STATES).iterdir())
    return sorted(name for name in names if not name.startswith("."))


def test_a_commit_of_the_archiver_is_one_commit_of_iceberg(
    spark: Any, log: Log, table: Any
) -> None:
    before = metadata_files(table)
    assert archive(spark, log, table) == 6
    assert len(metadata_files(table) - before) == 1
    java = table._load()
    assert [each.operation() for each in java.snapshots()] == ["append", "append"]
    assert list(dict(java.refs())) == ["main"]


def test_the_pointer_in_a_commit_does_not_grow_with_the_partitions(
    spark: Any, log: Log, table: Any
) -> None:
    state = table.state()
    spans = [Span("other", number, "id", 0, 10**12, fingerprint="f" * 16) for number in range(500)]
    wide = next_commit(state, spans, id="x" * 32)
    table.append(table.frame().limit(0), state, wide, lambda: (0, 0))
    assert table.state().archived == wide.archived
    sizes = [len(each.summary().get(SUMMARY)) for each in table._load().snapshots()]
    assert max(sizes) < 300
    folder = Path(table._location.path, STATES)
    assert (folder / state_files(table)[-1]).stat().st_size < 20_000


def test_of_two_archivers_at_one_time_the_second_to_commit_is_rejected(
    spark: Any, log: Log, table: Any
) -> None:
    def counted() -> tuple[int, int]:
        assert archive(spark, log, table) == 6
        return 1, 7

    state = table.state()
    late = next_commit(state, [Span("orders", 0, state.archived[0].topic_id, 5, 11)], id="x")
    with pytest.raises(ConcurrentCommit):
        table.append(table.frame().limit(1), state, late, counted)
    assert table.frame().count() == 11
    assert verify(spark, log, table).equal


def test_an_archiver_that_pauses_before_its_commit_changes_nothing(
    spark: Any, log: Log, table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = type(table)._commit
    paused: list[int] = []

    def late(self: Any, java: Any, snapshot: Any, before: CommitMetadata) -> None:
        if not paused:
            paused.append(1)
            # Empty commits conflict as well: the pointer decides, not the files.
            state = table.state()
            table.append(table.frame().limit(0), state, next_commit(state, []), lambda: (0, 0))
        commit(self, java, snapshot, before)

    monkeypatch.setattr(type(table), "_commit", late)
    state = table.state()
    lost = next_commit(state, [Span("orders", 0, state.archived[0].topic_id, 5, 11)], id="x")
    with pytest.raises(ConcurrentCommit):
        table.append(table.frame().limit(1), state, lost, lambda: (1, 7))
    assert table.frame().count() == 5 and table.state().number == state.number + 1


def test_a_compaction_at_the_same_time_is_no_conflict(spark: Any, log: Log, table: Any) -> None:
    def counted() -> tuple[int, int]:
        spark.sql(
            f"CALL {table._location.catalog}.system.rewrite_data_files("
            f"table => '{table._location.sql.partition('.')[2]}', "
            "options => map('rewrite-all', 'true'))"
        )
        return 0, 0

    state = table.state()
    table.append(table.frame().limit(0), state, next_commit(state, [], id="x"), counted)
    assert table.state().id == "x" and table.frame().count() == 5


def test_new_columns_and_wider_ones_are_added_with_the_rows(
    spark: Any, log: Log, table: Any
) -> None:
    one = table.frame().limit(1)
    rows = spark.createDataFrame(one.collect(), one.schema)
    for columns in (["7BD value_n"], ["CAST(8 AS DECIMAL(31, 0)) value_n"], []):
        state = table.state()
        more = rows.selectExpr("*", *columns)
        table.append(more, state, next_commit(state, []), lambda: (1, 7))
    found = table.frame().select("value_n")
    assert dict(found.dtypes)["value_n"] == "decimal(31,0)"
    assert sorted((row.value_n for row in found.collect()), key=str) == [7, 8, *[None] * 6]
