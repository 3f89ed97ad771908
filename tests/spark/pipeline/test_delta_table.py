"""Check the log and the state files of a Delta table, mostly without Spark."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from korvet.spark.pipeline import delta_table
from korvet.spark.pipeline.archive import ArchivedCommit, open_table
from korvet.spark.pipeline.commit_metadata import EMPTY, Span, next_commit, pointer_to, state_file
from korvet.spark.pipeline.delta_table import DeltaTable
from korvet.spark.pipeline.errors import ConcurrentCommit, PipelineError
from korvet.spark.pipeline.table_location import parse_location
from korvet.spark.tiered.archive_table import STATES
from tests.spark.pipeline.conftest import archive, location_for, verify
from tests.spark.topic_log import Log, plain

FIRST = next_commit(EMPTY, [Span("orders", 0, "id", 0, 10)], id="a", pending=True)
POINTER = msgspec.json.encode(pointer_to(FIRST)).decode()


def table(path: Path, *versions: tuple[int, str | None]) -> DeltaTable:
    """Return a table whose log has these versions with their user metadata."""
    log = path / "_delta_log"
    log.mkdir()
    for number, text in versions:
        info = {"operation": "WRITE", "operationMetrics": {"numOutputRows": "10"}}
        commit_info = info if text is None else {**info, "userMetadata": text}
        lines = [{"add": {"path": "x"}}, {"commitInfo": commit_info}, {"txn": {"appId": "a"}}]
        file = log / f"{number:020d}.json"
        file.write_text("\n".join(json.dumps(line) for line in lines))
    (log / "00000000000000000001.checkpoint.parquet").write_bytes(b"")
    (path / STATES).mkdir()
    (path / STATES / pointer_to(FIRST).state).write_bytes(state_file(FIRST))
    return DeltaTable(None, parse_location(str(path), "delta"))


def test_our_newest_commit_counts_below_commits_of_others(tmp_path: Path) -> None:
    found = table(tmp_path, (0, None), (1, POINTER), (2, "OPTIMIZE"), (3, None)).state()
    assert (found.id, found.rows, found.total_rows) == ("a", 10, 0)


def test_it_is_found_below_many_others(tmp_path: Path) -> None:
    others = [(n, None) for n in range(2, 60)]
    assert table(tmp_path, (1, POINTER), *others).state().id == "a"


def test_rows_whose_sums_a_crash_kept_back_are_counted_again(tmp_path: Path) -> None:
    found = table(tmp_path, (1, POINTER))
    pending = found.state()
    assert pending.pending
    settled = found.settle(pending, lambda _: (10, 77))
    assert (settled.pending, settled.total_rows, settled.checksum) == (False, 10, 77)
    assert found.state() == settled
    assert found.settle(settled, lambda _: pytest.fail("it is settled")) == settled


def test_a_missing_state_file_is_an_error(tmp_path: Path) -> None:
    found = table(tmp_path, (1, POINTER))
    (tmp_path / STATES / pointer_to(FIRST).state).unlink()
    with pytest.raises(PipelineError, match=r"state file _korvet/00000001-a .* is missing"):
        found.state()


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore")
def test_a_commit_of_the_archiver_is_one_commit_of_delta(
    spark: Any, log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_table, "KEPT_STATES", 2)
    topic = log.create("orders", 1, "record", "dense")
    location = location_for(spark, tmp_path, "delta")
    made = open_table(spark, location, "bytes")
    versions = Path(location.path, "_delta_log")
    commits: list[ArchivedCommit] = []
    for count in (5, 6, 7, 8):
        before = len(list(versions.glob("*.json")))
        log.append(topic, 0, plain(count))
        assert archive(spark, log, made, commits.append) == count
        assert len(list(versions.glob("*.json"))) == before + 1
    kept = {each.name[:8] for each in Path(location.path, STATES).iterdir()}
    assert kept == {"00000003", "00000004"}
    assert verify(spark, log, made).equal
    newest = max(versions.glob("*.json")).read_text()
    assert "archived" not in newest and len(newest) < 4000


def test_a_fresh_table_holds_nothing(tmp_path: Path) -> None:
    assert table(tmp_path, (0, None)).state() == EMPTY


def test_a_truncated_history_is_not_an_empty_table(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="cleaned up"):
        table(tmp_path, (7, None), (8, None)).state()


class Refused:
    """Rows whose writer raises this error."""

    def __init__(self, why: str) -> None:
        self._why = why

    @property
    def write(self) -> "Refused":
        return self

    def format(self, *_: object) -> "Refused":
        return self

    mode = option = format

    def save(self, _: str) -> None:
        raise RuntimeError(self._why)


@pytest.mark.parametrize("why", ["DELTA_CONCURRENT_TRANSACTION", "DELTA_METADATA_CHANGED"])
def test_a_conflict_with_another_archiver_is_a_concurrent_commit(tmp_path: Path, why: str) -> None:
    found = table(tmp_path, (0, None))
    with pytest.raises(ConcurrentCommit):
        found.append(Refused(f"[{why}] by another"), EMPTY, FIRST, lambda: (0, 0))
    with pytest.raises(RuntimeError, match="no space"):
        found.append(Refused("no space"), EMPTY, FIRST, lambda: (0, 0))
