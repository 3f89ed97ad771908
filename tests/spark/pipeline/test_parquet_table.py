"""Check commits of a Parquet archive, without Spark: visibility, conflicts, rejections."""

import errno
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from korvet.spark.pipeline import parquet_table
from korvet.spark.pipeline import parquet_table as atomic_swap
from korvet.spark.pipeline.commit_metadata import EMPTY, UNKNOWN, Span, next_commit
from korvet.spark.pipeline.errors import ConcurrentCommit, ForeignTable, NoArchive, PipelineError
from korvet.spark.pipeline.parquet_table import ParquetTable
from korvet.spark.pipeline.table_location import parse_location


def opened(path: Path) -> ParquetTable:
    return ParquetTable.open(None, parse_location(str(path), "parquet"), "bytes")


def commit_of(number: int) -> Span:
    return Span("orders", 0, "id", number * 10, number * 10 + 10)


def test_a_batch_is_visible_completely_or_not_at_all(tmp_path: Path) -> None:
    table = opened(tmp_path / "lake")
    staged = table.staging()
    (staged / "date=2026-11-21").mkdir()
    (staged / "date=2026-11-21" / "part.parquet").write_bytes(b"x")
    assert table.state() == EMPTY and not list(table.data.iterdir())
    commit = next_commit(EMPTY, [commit_of(0)], id="a")
    table.publish(staged, EMPTY, commit)
    assert table.state() == commit
    assert [each.name for each in table.data.rglob("*.parquet")] == ["part.parquet"]


def test_the_second_of_two_archivers_fails_and_adds_nothing(tmp_path: Path) -> None:
    table, other = opened(tmp_path / "lake"), opened(tmp_path / "lake")
    first = next_commit(EMPTY, [commit_of(0)], id="a")
    table.publish(table.staging(), EMPTY, first)
    with pytest.raises(ConcurrentCommit):
        other.publish(other.staging(), EMPTY, next_commit(EMPTY, [commit_of(0)], id="b"))
    assert table.state() == first
    assert len(list(table.data.iterdir())) == 1


def test_a_table_of_another_program_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "theirs.parquet").write_bytes(b"x")
    with pytest.raises(ForeignTable):
        opened(tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["theirs.parquet"]


def test_reading_makes_no_table(tmp_path: Path) -> None:
    with pytest.raises(NoArchive):
        ParquetTable.open(None, parse_location(str(tmp_path / "lake"), None), None)
    assert not (tmp_path / "lake").exists()


def test_a_path_below_a_file_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(PipelineError, match="cannot be written"):
        opened(tmp_path / "file" / "lake")


def test_staging_files_of_a_crash_are_deleted_after_a_day(tmp_path: Path) -> None:
    table = opened(tmp_path / "lake")
    old, young = table.staging(), table.staging()
    os.utime(old, (0, 0))
    table._sweep()
    assert not old.exists() and young.exists()


def test_directories_are_swapped(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    (one / "a").mkdir(parents=True)
    (other / "b").mkdir(parents=True)
    atomic_swap.swap_directories(one, other)
    assert [each.name for each in one.iterdir()] == ["b"]
    assert [each.name for each in other.iterdir()] == ["a"]


@pytest.mark.parametrize("text", ["s3a://bucket/lake", "hdfs://host/lake"])
def test_parquet_needs_a_file_system_with_rename(text: str) -> None:
    with pytest.raises(PipelineError, match="object store"):
        parse_location(text, "parquet")


class Rows:
    """A DataFrame with the methods that `append` uses: it writes one file."""

    @property
    def write(self) -> "Rows":
        return self

    def partitionBy(self, name: str) -> "Rows":
        return self

    def parquet(self, path: str) -> None:
        day = Path(path) / "date=2026-11-21"
        day.mkdir(parents=True)
        pq.write_table(pa.table({"n": [1, 2, 3]}), day / "part.parquet")


def test_a_full_disk_leaves_nothing_behind_and_the_next_run_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = opened(tmp_path / "lake")
    planned = next_commit(EMPTY, [commit_of(0)], id="a")

    def full(directory: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(parquet_table, "_fsync_tree", full)
        with pytest.raises(PipelineError, match="No space left on device"):
            table.append(Rows(), EMPTY, planned, lambda: (3, 7))
    assert table.state() == EMPTY
    assert not list((tmp_path / "lake").rglob("*.parquet"))
    done = table.append(Rows(), EMPTY, planned, lambda: (3, 7))
    assert (done.rows, done.total_rows, done.checksum) == (3, 3, 7)


def test_rows_counted_twice_make_the_checksum_unknown(tmp_path: Path) -> None:
    table = opened(tmp_path / "lake")
    planned = next_commit(EMPTY, [commit_of(0)], id="a")
    done = table.append(Rows(), EMPTY, planned, lambda: (6, 14))
    assert (done.rows, done.checksum) == (3, UNKNOWN)
