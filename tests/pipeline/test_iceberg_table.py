"""Check branches of an Iceberg archive, and changes by others between two steps of a commit."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from korvet.pipeline import iceberg_table
from korvet.pipeline.archive import ArchivedCommit, ArchiveJob, Archiver
from korvet.pipeline.commit_metadata import Span, next_commit
from korvet.pipeline.errors import ConcurrentCommit
from korvet.pipeline.open_table import open_table
from korvet.pipeline.table import ArchiveTable, TableCreation
from korvet.pipeline.verify import verify_archive
from korvet.spark.options import Connection
from tests.pipeline.conftest import location_for
from tests.spark.topic_log import Log, plain

# Py4J closes its sockets only when they are garbage-collected.
pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]


def ignore_commit(done: ArchivedCommit) -> None:
    """Ignore the commit."""


def archived(spark: Any, log: Log, table: Any) -> int:
    return Archiver(spark, table, ArchiveJob(Connection(log.url), ("orders",))).catch_up(
        ignore_commit
    )


@pytest.fixture
def table(spark: Any, log: Log, tmp_path: Path) -> Iterator[ArchiveTable]:
    """A table that has five of a topic's eleven records."""
    topic = log.create("orders", 1, "record", "dense")
    log.append(topic, 0, plain(5))
    made = open_table(spark, location_for(spark, tmp_path, "iceberg"), TableCreation())
    archived(spark, log, made)
    log.append(topic, 0, plain(6))
    yield made


class Meanwhile:
    """A table, or rows for it, with an action that runs just before the write."""

    def __init__(self, of: Any, event: Callable[[], object]) -> None:
        self._of = of
        self._event = event

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of, name)

    def append(self, frame: Any, *more: Any) -> Any:
        return self._of.append(Meanwhile(frame, self._event), *more)

    def writeTo(self, name: str) -> Any:
        self._event()
        return self._of.writeTo(name)


def branches(table: Any) -> list[str]:
    return [name for name in dict(table._load().refs()) if name.startswith(iceberg_table.BRANCH)]


def test_an_archiver_keeps_a_fresh_branch_of_another_archiver(
    spark: Any, log: Log, table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest, seen = time.time, []

    def another() -> None:
        with monkeypatch.context() as patch:
            # An hour after the base commit of the branch, but shortly after its creation.
            patch.setattr(iceberg_table, "STALE_MS", 60_000)
            patch.setattr(time, "time", lambda: honest() + 3650)
            if not seen:
                seen.append(archived(spark, log, table))
                seen.append(len(branches(table)))

    monkeypatch.setattr(time, "time", lambda: honest() + 3600)
    assert archived(spark, log, Meanwhile(table, another)) == 0
    assert seen == [6, 1]
    assert not branches(table)
    assert verify_archive(spark, table, Connection(log.url), ["orders"]).equal


@pytest.mark.parametrize("when", ["before", "behind"])
def test_a_branch_that_another_process_dropped_is_not_recreated_from_main(
    log: Log, table: Any, when: str
) -> None:
    def take_away() -> None:
        for name in branches(table):
            table._load().manageSnapshots().removeBranch(name).commit()

    def counted() -> tuple[int, int]:
        if when == "behind":
            take_away()
        return 1, 7

    state = table.state()
    span = Span("orders", 0, state.archived[0].topic_id, 5, 11)
    rows: Any = table.frame().limit(1)
    if when == "before":
        rows = Meanwhile(rows, take_away)
    with pytest.raises(ConcurrentCommit):
        table.append(rows, state, next_commit(state, [span], id="x"), counted)
    assert table.state() == state and table.frame().count() == 5
    assert not branches(table)


def test_branches_of_a_crash_are_dropped_after_an_hour(
    spark: Any, log: Log, table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = table._load()
    base = java.currentSnapshot().snapshotId()
    now = iceberg_table._now_ms()
    left = f"{iceberg_table.BRANCH}{now - iceberg_table.STALE_MS - 1}_{'0' * 32}"
    fresh = f"{iceberg_table.BRANCH}{now}_{'0' * 32}"
    java.manageSnapshots().createBranch(left, base).createBranch(fresh, base).commit()
    iceberg_table._drop_stale_branches(table._load())
    assert branches(table) == [fresh]
    honest = time.time
    monkeypatch.setattr(time, "time", lambda: honest() + 7200)
    iceberg_table._drop_stale_branches(table._load())
    assert not branches(table)
