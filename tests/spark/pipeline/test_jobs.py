"""Check the jobs on a real Spark, for each table format."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from korvet.spark.options import Connection
from korvet.spark.pipeline import iceberg_table
from korvet.spark.pipeline.archive import ArchivedCommit, open_table
from korvet.spark.pipeline.commit_metadata import EMPTY, next_commit
from korvet.spark.pipeline.errors import ConcurrentCommit, ForeignTable, NoArchive, PipelineError
from korvet.spark.pipeline.replay import ReplayOptions, ReplayResult, replay
from korvet.spark.pipeline.stats import stats
from korvet.spark.pipeline.table import ArchiveTable
from korvet.spark.pipeline.table_location import TableLocation
from korvet.wire.records import Record
from tests.spark.data_source_driver import read
from tests.spark.pipeline.archive_readers import offsets_in
from tests.spark.pipeline.conftest import archive, location_for, new_table, verify
from tests.spark.topic_log import Log, plain

# Py4J closes its sockets only when they are garbage-collected.
pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]

FORMATS = ("parquet", "delta", "iceberg")
formats = pytest.mark.parametrize("format", FORMATS)


def odd(count: int) -> list[Record]:
    """Return records with and without each of their fields."""
    shapes = [(None, b"v", []), (b"", b"", [("h", None)]), (b"k", None, [("a", b"1"), ("a", b"")])]
    return [(n, 1_700_000_000_000 + n * 3_600_000, *shapes[n % 3]) for n in range(count)]


def read_by_others(path: Path, format: str) -> set[tuple[str, int, int]]:
    """Return topic, partition and offset of every row, read without Spark; reject duplicates."""
    rows = offsets_in(path, format)
    assert len(set(rows)) == len(rows)
    return set(rows)


def keys_of(log: Log, topic: str) -> set[tuple[str, int, int]]:
    return {
        (name, number, record[0])
        for (name, number), found in log.written.items()
        if name == topic
        for record in found
    }


class Dying:
    """A table whose archiver dies during its `at`-th append."""

    def __init__(self, table: ArchiveTable, before: bool) -> None:
        self._table = table
        self._before = before

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def append(self, *arguments: Any) -> Any:
        if self._before:
            raise KeyboardInterrupt
        self._table.append(*arguments)
        raise KeyboardInterrupt


@pytest.fixture
def filled(log: Log) -> Iterator[Log]:
    topic = log.create("orders", 2, "batch", "dense", records=300)
    log.append(topic, 1, odd(40))
    yield log


@formats
def test_a_topic_is_archived_once_whatever_happens(
    spark: Any, filled: Log, tmp_path: Path, format: str
) -> None:
    location = location_for(spark, tmp_path, format)
    table = open_table(spark, location, "bytes")
    commits: list[ArchivedCommit] = []
    assert archive(spark, filled, table, commits.append, max_records=200) == 340
    assert len(commits) == 2
    topic = filled.topics["orders"]
    filled.append(topic, 0, plain(50))
    for before in (True, False):
        with pytest.raises(KeyboardInterrupt):
            archive(spark, filled, Dying(table, before), max_records=200)
    assert archive(spark, filled, open_table(spark, location)) == 0
    stale = next_commit(EMPTY, [])
    with pytest.raises(ConcurrentCommit):
        table.append(table.frame().limit(1), EMPTY, stale, lambda: (1, 0))
    verdict = verify(spark, filled, table)
    assert verdict.equal, verdict
    assert verdict.rows == 390
    path = Path(location.path)
    assert read_by_others(path, format) == keys_of(filled, "orders")
    assert table.compact(128 << 20) > 0
    assert read_by_others(path, format) == keys_of(filled, "orders")
    filled.append(topic, 1, odd(3))
    assert archive(spark, filled, table, trim_older_ms=0) == 3
    verdict = verify(spark, filled, table)
    assert verdict.equal and verdict.rows == 393
    assert filled.store.command("XLEN", "korvet:orders:0") == 0
    filled.append(topic, 0, plain(7))
    both = read(filled.url, subscribe="orders", archive=location.path)
    assert {(row["topic"], row["partition"], row["offset"]) for row in both} == keys_of(
        filled, "orders"
    )
    assert len(both) == 400


@pytest.mark.parametrize("hint", ["1", None])
def test_an_iceberg_table_is_read_at_its_last_commit_despite_a_stale_hint(
    spark: Any, filled: Log, tmp_path: Path, hint: str | None
) -> None:
    location = location_for(spark, tmp_path, "iceberg")
    table = open_table(spark, location, "bytes")
    archive(spark, filled, table, trim_older_ms=0)
    # An archiver that dies between commit and hint leaves a stale hint, or none.
    file = Path(location.path, "metadata", "version-hint.text")
    file.unlink()
    if hint is not None:
        file.write_text(hint)
    assert len(read(filled.url, subscribe="orders", archive=location.path)) == 340


def test_an_iceberg_table_does_not_grow_with_the_number_of_its_commits(
    spark: Any, filled: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iceberg_table, "EXPIRE_EVERY", 2)
    location = location_for(spark, tmp_path, "iceberg")
    table = open_table(spark, location, "bytes")
    soon = "'history.expire.max-snapshot-age-ms' = '1'"
    few = "'write.metadata.previous-versions-max' = '4'"
    spark.sql(f"ALTER TABLE {location.sql} SET TBLPROPERTIES ({few}, {soon})")
    assert archive(spark, filled, table, max_records=90, trim_older_ms=0) == 340
    assert table.state().number == 4
    folder = Path(location.path, "metadata")
    assert len(list(folder.glob("*.metadata.json"))) == 5
    assert len(list(folder.glob("snap-*.avro"))) == 1
    assert len(list(folder.parent.glob("_korvet/0*"))) == 1
    assert len(offsets_in(Path(location.path), "iceberg")) == 340
    assert verify(spark, filled, table).equal


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_a_table_of_another_program_is_rejected(spark: Any, tmp_path: Path, format: str) -> None:
    location = location_for(spark, tmp_path, format)
    spark.sql(f"CREATE TABLE {location.sql} (n INT) USING {format}")
    with pytest.raises(ForeignTable):
        open_table(spark, location, "bytes")


def test_verify_reports_differences(spark: Any, filled: Log, tmp_path: Path) -> None:
    table = new_table(spark, tmp_path)
    archive(spark, filled, table)
    state = table.state()
    twice = next_commit(state, [], id="x")
    table.append(table.frame().where("partition = 1 AND offset = 3"), state, twice, lambda: (1, 7))
    verdict = verify(spark, filled, table)
    assert not verdict.equal
    assert [each.duplicates for each in verdict.partitions] == [0, 1]
    assert verdict.problems == ("the table's rows are not those that its commits wrote",)


def again(
    spark: Any,
    log: Log,
    table: ArchiveTable,
    location: TableLocation,
    **wanted: Any,
) -> ReplayResult:
    """Replay the table into topic `again`."""
    options = ReplayOptions(**wanted)
    return replay(spark, table, location, Connection(log.url), "again", options)


def test_a_replay_writes_each_row_once_however_often_it_runs(
    spark: Any, filled: Log, tmp_path: Path
) -> None:
    location = location_for(spark, tmp_path, "parquet")
    table = open_table(spark, location, "bytes")
    archive(spark, filled, table)
    filled.create("again", 2, "record", "dense")
    wanted = {"where": "offset >= 10", "keep_timestamps": True}
    assert again(spark, filled, table, location, **wanted).records == 320
    assert again(spark, filled, table, location, **wanted).done_before
    names = ("partition", "timestamp", "key", "value", "headers")
    found = (
        spark.read.format("korvet")
        .options(redis=filled.url, subscribe="again", includeHeaders="true")
        .load()
        .select(*names)
        .collect()
    )
    rows = table.frame().where("offset >= 10").select(*names).collect()
    assert sorted(map(str, found)) == sorted(map(str, rows))


def test_a_replay_into_a_topic_with_added_partitions_writes_no_row_twice(
    spark: Any, filled: Log, tmp_path: Path
) -> None:
    location = location_for(spark, tmp_path, "parquet")
    table = open_table(spark, location, "bytes")
    target = filled.create("again", 1, "record", "dense")
    archive(spark, filled, table)
    first = again(spark, filled, table, location)
    assert first.records == 340
    # It died before the job finished: files of its tasks are still there.
    job = filled.keys.writer(f"job-{first.replay}")
    filled.store.command("HDEL", job, "committed")
    filled.store.command("HSET", job, f"spread:{target.id}", "0:1:0")
    filled.grow(target, 2)
    second = again(spark, filled, table, location)
    assert (second.replay, second.done_before) == (first.replay, False)
    lengths = [filled.store.command("XLEN", f"korvet:again:{number}") for number in range(2)]
    assert lengths == [340, 0]


def test_a_replay_of_an_empty_table_does_not_prevent_later_replays(
    spark: Any, filled: Log, tmp_path: Path
) -> None:
    location = location_for(spark, tmp_path, "parquet")
    table = open_table(spark, location, "bytes")
    filled.create("again", 1, "record", "dense")
    nothing = again(spark, filled, table, location)
    assert (nothing.records, nothing.done_before) == (0, False)
    archive(spark, filled, table)
    assert again(spark, filled, table, location).records == 340


def test_json_fields_become_columns_and_nothing_is_lost(
    spark: Any, log: Log, tmp_path: Path
) -> None:
    topic = log.create("orders", 1, "record", "dense")

    def put(*values: bytes | None) -> None:
        log.append(topic, 0, [(n, 1_700_000_000_000, None, v, []) for n, v in enumerate(values)])

    table = new_table(spark, tmp_path, values="json")
    put(b'{"n": 1, "to": {"city": "Bern"}}', b"no json", None, b"[1]")
    archive(spark, log, table, values="json")
    put(b'{"n": "many", "new": true}', b'{"to": {"zip": 3000}}')
    archive(spark, log, table, values="json")
    rows = table.frame().orderBy("offset").collect()
    assert [row["value_n"] for row in rows] == [1, None, None, None, None, None]
    assert rows[0]["value_to"]["city"] == "Bern"
    assert rows[4]["value_new"] is True
    assert rows[5]["value_to"]["zip"] == 3000
    assert [row["_corrupt"] for row in rows] == [
        None,
        "no JSON",
        None,
        "no JSON object",
        "a field has another type than its column",
        None,
    ]
    assert bytes(rows[1]["value"]) == b"no json"
    assert verify(spark, log, table).equal


def test_json_objects_without_a_field_that_a_column_could_have_are_kept(
    spark: Any, log: Log, tmp_path: Path
) -> None:
    topic = log.create("orders", 1, "record", "dense")
    values = [b'{"n": 1, "of": [{"a b": 2}], "in": {"to": [[{"c;d": 3}]]}}']
    log.append(topic, 0, [(n, 1_700_000_000_000, None, v, []) for n, v in enumerate(values)])
    table = new_table(spark, tmp_path, values="json")
    assert archive(spark, log, table, values="json") == 1
    [row] = table.frame().collect()
    assert row["value_n"] == 1 and bytes(row["value"]) == values[0]
    assert [name for name in row.asDict() if name.startswith("value_")] == ["value_n"]


def test_avro_fields_become_columns_and_what_does_not_fit_is_kept(
    spark: Any, log: Log, tmp_path: Path
) -> None:
    topic = log.create("orders", 1, "record", "dense")
    values = [b"\x02\x06abc", b"\xff", None]
    log.append(topic, 0, [(n, 1_700_000_000_000, None, v, []) for n, v in enumerate(values)])
    schema = (
        '{"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}, '
        '{"name": "name", "type": "string"}]}'
    )
    table = new_table(spark, tmp_path, values="avro")
    archive(spark, log, table, values="avro", avro_schema=schema)
    rows = table.frame().orderBy("offset").collect()
    assert [(row["value_id"], row["value_name"]) for row in rows] == [
        (1, "abc"),
        (None, None),
        (None, None),
    ]
    assert [row["_corrupt"] for row in rows] == [None, "does not fit the Avro schema", None]
    assert bytes(rows[1]["value"]) == b"\xff"


def test_a_column_never_gets_another_type(spark: Any, log: Log, tmp_path: Path) -> None:
    topic = log.create("orders", 1, "record", "dense")
    table = new_table(spark, tmp_path, values="avro")

    def archived(value: bytes, **more: Any) -> int:
        log.append(topic, 0, [(0, 1_700_000_000_000, None, value, [])])
        return archive(spark, log, table, **more)

    def avro(**fields: str) -> dict[str, str]:
        columns = ", ".join(f'{{"name": "{n}", "type": "{t}"}}' for n, t in fields.items())
        schema = f'{{"type": "record", "name": "r", "fields": [{columns}]}}'
        return {"values": "avro", "avro_schema": schema}

    assert archived(b"\x02", **avro(id="int")) == 1
    with pytest.raises(PipelineError, match="value_id would get another type"):
        archived(b"\x02a", **avro(id="string"))
    assert archived(b"\x02\x02", **avro(id="int", string="int")) == 2
    with pytest.raises(PipelineError, match="value_string would get another type"):
        archived(b"text", values="string")
    assert archived(b'{"id": "many", "new": 1}', values="json") == 2
    rows = table.frame().orderBy("offset").collect()
    assert [row["value_id"] for row in rows] == [1, 1, 1, None, None]
    assert [row["value_new"] for row in rows] == [None, None, None, None, 1]
    assert verify(spark, log, table).equal


def test_spans_without_a_record_are_a_table_that_can_be_read(
    spark: Any, log: Log, tmp_path: Path
) -> None:
    topic = log.create("orders", 1, "record", "dense", records=5)
    # As if they were records of an aborted transaction.
    log.store.command("XTRIM", "korvet:orders:0", "MAXLEN", 0)
    location = location_for(spark, tmp_path, "parquet")
    table = open_table(spark, location, "bytes")
    assert archive(spark, log, table) == 0
    assert [(each.start, each.end) for each in table.state().archived] == [(0, 5)]
    assert verify(spark, log, table).equal
    log.create("again", 1)
    found = again(spark, log, table, location)
    assert found.records == 0 and not found.done_before
    assert read(log.url, subscribe="orders", archive=location.path) == []
    log.append(topic, 0, plain(5))
    assert archive(spark, log, table) == 5
    assert verify(spark, log, table).rows == 5


@formats
def test_an_interrupted_table_creation_is_continued(
    spark: Any, tmp_path: Path, format: str
) -> None:
    location = location_for(spark, tmp_path, format)
    left = {
        "parquet": ("_korvet/staging/", "_korvet/table.0123456789abcdef0123456789abcdef"),
        "delta": (
            "_delta_log/",
            "_delta_log/.00000000000000000000.json.e1f8d7a0-7d6e-4f52-9e5c-0d3c8b3b1f55.tmp",
            "_delta_log/..00000000000000000000.json.e1f8d7a0-7d6e-4f52-9e5c-0d3c8b3b1f55.tmp.crc",
        ),
        "iceberg": ("metadata/", "metadata/e1f8d7a0-7d6e-4f52-9e5c-0d3c8b3b1f55.metadata.json"),
    }[format]
    for n, name in enumerate(left):
        path = Path(location.path, name)
        if name.endswith("/"):
            path.mkdir(parents=True)
        else:
            path.write_bytes(b"{")
        with pytest.raises((NoArchive, ForeignTable)):
            open_table(spark, location)
        if n == len(left) - 1:
            assert open_table(spark, location, "bytes").state() == EMPTY
            assert open_table(spark, location).state() == EMPTY


@formats
def test_unknown_files_at_the_location_are_rejected(
    spark: Any, tmp_path: Path, format: str
) -> None:
    location = location_for(spark, tmp_path, format)
    theirs = {
        "parquet": "data/part.parquet",
        "delta": "_delta_log/00000000000000000000.crc",
        "iceberg": "metadata/00000-e1f8d7a0-7d6e-4f52-9e5c-0d3c8b3b1f55.metadata.json",
    }[format]
    path = Path(location.path, theirs)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"{")
    with pytest.raises(ForeignTable):
        open_table(spark, location, "bytes")
    assert path.read_bytes() == b"{"


def test_statistics_count_what_is_there(spark: Any, filled: Log) -> None:
    [found] = stats(spark, Connection(filled.url), ["orders"])
    assert (found.records, found.without_key, found.tombstones) == (340, 14, 13)
    assert abs(found.keys - 302) <= 0.06 * 302
    assert [part.records for part in found.parts] == [300, 40]
    assert sum(point.records for point in found.over_time) == 340
    assert found.bytes == sum(part.bytes for part in found.parts)
    assert found.top[0].records == 13
    assert found.latency_ms is None
