"""Check that a trim removes records that are archived and old enough, and no others."""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from korvet.scripts.call import Call
from korvet.scripts.calls.partition import DELETE_RECORDS
from korvet.spark.metadata import MetadataClient
from korvet.spark.options import Connection
from korvet.spark.pipeline import trim
from korvet.spark.pipeline.archive import ArchiveJob, Archiver
from korvet.spark.pipeline.commit_metadata import next_commit
from korvet.spark.pipeline.next_commit import archive_target, plan_next_commit
from korvet.spark.pipeline.parquet_table import ParquetTable
from korvet.spark.pipeline.table_location import parse_location
from korvet.store.sync_store import SyncStore
from tests.spark.decode.test_aborted_transactions import Transaction
from tests.spark.topic_log import LAYOUTS, Log, plain

HOUR_MS = 3_600_000


def trimmed(log: Log, path: Path, older_ms: int = HOUR_MS) -> int:
    """Trim a completely archived log and return the number of removed entries."""
    table = ParquetTable.open(None, parse_location(str(path / "lake"), "parquet"), "bytes")
    metadata = MetadataClient(Connection(log.url), log.store)
    target = archive_target(metadata, ["orders"])
    step = plan_next_commit(metadata, table.state(), target, 10**6)
    if step is not None:
        table.publish(table.staging(), table.state(), next_commit(table.state(), step.spans))
    job = ArchiveJob(Connection(log.url), ("orders",), trim_older_ms=older_ms)
    return Archiver(None, table, job).trim(metadata, target)


def add_natively(log: Log, count: int, id_: str = "*") -> None:
    for _ in range(count):
        log.store.command("XADD", "korvet:orders:0", id_, "value", "v")


@pytest.mark.parametrize(("form", "mode"), LAYOUTS)
def test_old_records_are_trimmed_and_new_ones_kept(
    log: Log, tmp_path: Path, form: str, mode: str
) -> None:
    topic = log.create("orders", 1, form, mode, records=10)
    assert trimmed(log, tmp_path) == (10 if form == "record" else 1)
    log.append(topic, 0, plain(10, since=int(time.time() * 1000)))
    assert trimmed(log, tmp_path) == 0


def test_many_partitions_block_redis_no_longer_than_one(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trim, "STEPS", 6)
    topic = log.create("orders", 5)
    for part in range(5):
        for _ in range(2 * part):
            log.append(topic, part, plain(100, size=800))
    bursts: list[int] = []
    run_many = SyncStore.run_many

    def noted(store: SyncStore, calls: Iterable[Call[Any]]) -> list[Any]:
        found = list(calls)
        if found and found[0].script is DELETE_RECORDS:
            bursts.append(sum(int(str(call.args[2])) for call in found))
        return run_many(store, found)

    monkeypatch.setattr(SyncStore, "run_many", noted)
    assert trimmed(log, tmp_path) == 2000
    assert len(bursts) > 2 and max(bursts) <= 6


@pytest.mark.parametrize(("form", "mode"), LAYOUTS)
def test_records_without_a_timestamp_are_as_old_as_their_append(
    log: Log, tmp_path: Path, form: str, mode: str
) -> None:
    topic = log.create("orders", 1, form, mode)
    log.append(topic, 0, [(0, -1, b"k", b"v", [])])
    assert trimmed(log, tmp_path) == 0


@pytest.mark.parametrize("mode", ["time", "dense"])
@pytest.mark.parametrize("before", [0, 3])
def test_new_foreign_entries_are_kept(log: Log, tmp_path: Path, mode: str, before: int) -> None:
    topic = log.create("orders", 1, "record", mode)
    if before:
        log.append(topic, 0, plain(before))
    add_natively(log, 5)
    gone = trimmed(log, tmp_path)
    assert gone in (0, before)
    assert log.store.command("XLEN", "korvet:orders:0") == 5 + before - gone


def test_old_foreign_entries_are_trimmed(log: Log, tmp_path: Path) -> None:
    log.create("orders", 1, "record", "time")
    add_natively(log, 4, f"{int(time.time() * 1000) - 2 * HOUR_MS}-*")
    add_natively(log, 2)
    assert trimmed(log, tmp_path) == 4


def test_removed_foreign_entries_are_allowed(log: Log, tmp_path: Path) -> None:
    log.create("orders", 1, "record", "time")
    add_natively(log, 5)
    assert trimmed(log, tmp_path) == 0
    log.store.command("XTRIM", "korvet:orders:0", "MAXLEN", 0)
    assert trimmed(log, tmp_path, 0) == 0


@pytest.mark.parametrize("mode", ["time", "dense"])
def test_transaction_markers_do_not_block_trimming(log: Log, tmp_path: Path, mode: str) -> None:
    topic = log.create("orders", 1, "record", mode)
    one = Transaction(log, topic, 11)
    for _ in range(100):
        one.append(plain(10))
        one.end(committed=True)
    log.append(topic, 0, plain(10, since=int(time.time() * 1000)))
    assert trimmed(log, tmp_path) > 300


def test_an_old_foreign_entry_does_not_block_trimming(log: Log, tmp_path: Path) -> None:
    topic = log.create("orders", 1, "record", "dense")
    log.append(topic, 0, plain(10, size=10_000))
    add_natively(log, 1)
    for _ in range(3):
        log.append(topic, 0, plain(10, size=10_000))
    log.append(topic, 0, plain(10, since=int(time.time() * 1000) + 2 * HOUR_MS))
    # A foreign entry is as old as the next append, which is now: of the rest, only what is below it
    # may be trimmed.
    assert trimmed(log, tmp_path) == 10
    assert trimmed(log, tmp_path, -HOUR_MS) > 20
    assert trimmed(log, tmp_path, -HOUR_MS) == 0


def test_many_partitions_are_trimmed_in_few_round_trips(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = log.create("orders", 60, "record", "dense")
    for number in range(60):
        log.append(topic, number, plain(1 + number))
    asked = []
    for name in ("run", "run_many", "command", "commands"):
        done = getattr(log.store, name)
        monkeypatch.setattr(log.store, name, lambda *a, done=done: asked.append(a) or done(*a))
    assert trimmed(log, tmp_path) == sum(range(61))
    assert len(asked) < 40
    assert trimmed(log, tmp_path) == 0
