"""Check reads of a Delta table's log without Spark."""

import json
from pathlib import Path

import pytest

from korvet.pipeline.commit_metadata import EMPTY, Span, encode, next_commit
from korvet.pipeline.delta_table import DeltaTable
from korvet.pipeline.errors import ConcurrentCommit, PipelineError
from korvet.pipeline.table_location import parse_location

FIRST = next_commit(EMPTY, [Span("orders", 0, "id", 0, 10)], id="a", pending=True)


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
    return DeltaTable(None, parse_location(str(path), "delta"))


def test_our_newest_commit_counts_below_commits_of_others(tmp_path: Path) -> None:
    found = table(tmp_path, (0, None), (1, encode(FIRST)), (2, "OPTIMIZE"), (3, None)).state()
    assert (found.id, found.rows, found.total_rows) == ("a", 10, 0)


def test_it_is_found_below_many_others(tmp_path: Path) -> None:
    others = [(n, None) for n in range(2, 60)]
    assert table(tmp_path, (1, encode(FIRST)), *others).state().id == "a"


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
