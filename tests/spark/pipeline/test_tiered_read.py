"""Check tiered reads: the parts of table and Redis, without gap or overlap."""

import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyspark.sql.datasource import GreaterThanOrEqual

from korvet.spark.decode import range_scan
from korvet.spark.errors import DataLoss, InvalidOption, TopicRecreated
from korvet.spark.pipeline.commit_metadata import Span, next_commit
from korvet.spark.pipeline.parquet_table import ParquetTable
from korvet.spark.pipeline.table_location import parse_location
from korvet.spark.tiered import tiered_read
from korvet.topics.table import Topic
from tests.spark.data_source_driver import Row, read
from tests.spark.topic_log import LAYOUTS, Log, plain

PAIRS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class Lake:
    """An archive, filled from a log without Spark."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.table = ParquetTable.open(None, parse_location(self.path, "parquet"), "bytes")

    def archive(self, log: Log, topic: Topic, partition: int, end: int, *, since: int = 0) -> None:
        """Archive the partition's records below `end`, from `since` on if it is new."""
        before = self.table.state()
        held = before.archived_range(topic.name, partition)
        start = since if held is None else held.end
        rows: list[Row] = read(
            log.url,
            assign=f'{{"{topic.name}": [{partition}]}}',
            startingOffsets=f'{{"{topic.name}": {{"{partition}": {start}}}}}',
            endingOffsets=f'{{"{topic.name}": {{"{partition}": {end}}}}}',
            includeHeaders="true",
        )
        staged = self.table.staging()
        (staged / "date=2026-11-21").mkdir()
        types = {
            "topic": pa.string(),
            "partition": pa.int32(),
            "offset": pa.int64(),
            "timestamp": pa.timestamp("us", "UTC"),
            "timestampType": pa.int32(),
            "key": pa.binary(),
            "value": pa.binary(),
            "headers": PAIRS,
        }
        columns = {name: pa.array([row[name] for row in rows], t) for name, t in types.items()}
        pq.write_table(pa.table(columns), staged / "date=2026-11-21" / "part-0.parquet")
        span = Span(topic.name, partition, topic.id, start, end)
        self.table.publish(staged, before, next_commit(before, [span], id=str(end)))


def found(log: Log, lake: Lake, **options: object) -> list[tuple[int, int]]:
    rows = read(log.url, subscribe="orders", **{"archive": lake.path, **options})
    return [(row["partition"], row["offset"]) for row in rows]


def written(log: Log) -> list[tuple[int, int]]:
    return sorted(
        (number, record[0]) for (_, number), all_ in log.written.items() for record in all_
    )


@pytest.mark.parametrize(("form", "mode"), LAYOUTS)
@pytest.mark.parametrize("seed", range(3))
def test_every_record_comes_once_wherever_it_is(
    log: Log, tmp_path: Path, form: str, mode: str, seed: int
) -> None:
    draw = random.Random(seed)
    topic = log.create("orders", 2, form, mode)
    lake = Lake(tmp_path / "lake")
    for _ in range(4):
        for n in range(2):
            log.append(topic, n, plain(draw.randint(1, 60)))
            offsets = [record[0] for record in log.written["orders", n]]
            edge = draw.choice(offsets) + 1
            held = lake.table.state().archived_range("orders", n)
            if held is None or edge > held.end:
                lake.archive(log, topic, n, edge)
                held = lake.table.state().archived_range("orders", n)
            assert held is not None
            log.truncate(topic, n, draw.choice([o for o in offsets if o <= held.end]))
        assert sorted(found(log, lake)) == written(log)
    for columns in ("offset,partition", "value,partition,offset"):
        assert sorted(found(log, lake, columns=columns)) == written(log)


def test_a_trim_between_plan_and_read_sends_the_task_to_the_table(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = log.create("orders", records=100)
    lake = Lake(tmp_path / "lake")
    lake.archive(log, topic, 0, 30)
    honest = range_scan.RangeScan._ask
    trimmed: list[int] = []

    def late(self: range_scan.RangeScan, start: int, stop: int | None, most: int) -> None:
        if not trimmed:
            trimmed.append(1)
            lake.archive(log, topic, 0, 60)
            log.truncate(topic, 0, 50)
        honest(self, start, stop, most)

    monkeypatch.setattr(range_scan.RangeScan, "_ask", late)
    assert sorted(found(log, lake)) == written(log)
    assert trimmed


def half_archived(log: Log, folder: Path, trimmed: int) -> Lake:
    """Archive the first 30 of 50 records and trim the log below `trimmed`."""
    topic = log.create("orders", records=50)
    lake = Lake(folder / "lake")
    lake.archive(log, topic, 0, 30)
    log.truncate(topic, 0, trimmed)
    return lake


def test_a_start_within_the_table_is_honoured(log: Log, tmp_path: Path) -> None:
    lake = half_archived(log, tmp_path, 20)
    starts = '{"orders": {"0": 12}}'
    assert [o for _, o in found(log, lake, startingOffsets=starts)] == list(range(12, 50))


def test_an_end_within_the_table_is_honoured(log: Log, tmp_path: Path) -> None:
    lake = half_archived(log, tmp_path, 20)
    for end, start in ((12, 5), (25, 12), (12, 12)):
        places = [f'{{"orders": {{"0": {at}}}}}' for at in (start, end)]
        rows = found(log, lake, startingOffsets=places[0], endingOffsets=places[1])
        assert rows == [(0, offset) for offset in range(start, end)]


def test_a_filter_on_time_loses_nothing_to_a_trim_before_the_task(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = log.create("orders")
    records = log.append(topic, 0, plain(100))
    lake = Lake(tmp_path / "lake")
    lake.archive(log, topic, 0, 60)
    honest = tiered_read.split_by_storage

    def late(*arguments: Any) -> Any:
        planned = honest(*arguments)
        log.truncate(topic, 0, 50)
        return planned

    monkeypatch.setattr(tiered_read, "split_by_storage", late)
    since = datetime.fromtimestamp(records[20][1] / 1000, UTC)
    later = [GreaterThanOrEqual(("timestamp",), since)]
    rows = read(log.url, subscribe="orders", archive=lake.path, filters=later)
    assert set(range(20, 100)) <= {row["offset"] for row in rows}


def test_offsets_below_the_tables_first_are_missing_only_if_requested(
    log: Log, tmp_path: Path
) -> None:
    topic = log.create("orders", records=50)
    log.truncate(topic, 0, 10)
    lake = Lake(tmp_path / "lake")
    asked = {"startingOffsets": '{"orders": {"0": 5}}'}
    assert [o for _, o in found(log, lake)] == list(range(10, 50))
    with pytest.raises(DataLoss, match="has none of them"):
        found(log, lake, **asked)
    lake.archive(log, topic, 0, 30, since=10)
    log.truncate(topic, 0, 20)
    assert [o for _, o in found(log, lake)] == list(range(10, 50))
    with pytest.raises(DataLoss, match="has 10 to 29"):
        found(log, lake, **asked)
    assert len(found(log, lake, **asked, failOnDataLoss="false")) == 40


def test_a_table_of_another_program_is_rejected(log: Log, tmp_path: Path) -> None:
    log.create("orders")
    write_deltalake(str(tmp_path / "theirs"), pa.table({"topic": ["orders"]}))
    with pytest.raises(InvalidOption, match="not made by korvet pipeline"):
        found(log, Lake(tmp_path / "lake"), archive=str(tmp_path / "theirs"))


def test_offsets_in_neither_log_nor_archive_are_reported(log: Log, tmp_path: Path) -> None:
    lake = half_archived(log, tmp_path, 40)
    with pytest.raises(DataLoss, match="0 to 29"):
        found(log, lake)


def test_an_archive_of_another_topic_id_is_rejected(log: Log, tmp_path: Path) -> None:
    topic = log.create("orders", records=5)
    lake = Lake(tmp_path / "lake")
    lake.archive(log, topic, 0, 5)
    log.store.command("FLUSHALL")
    log.create("orders")
    with pytest.raises(TopicRecreated):
        found(log, lake)


def test_an_archive_that_is_not_there_is_named(log: Log, tmp_path: Path) -> None:
    log.create("orders")
    with pytest.raises(InvalidOption, match="archive"):
        read(log.url, subscribe="orders", archive=str(tmp_path))
