"""Check batch reads: every layout, every column, every way to select a range."""

import json
import os
import random
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual

from korvet.log.entry import DENSE_MS
from korvet.spark.decode.range_scan import FOREIGN_ENTRIES, RangeScan
from korvet.spark.decode.record_decoder import RecordDecoder
from korvet.spark.decode.xrange_reply import XRangeReply
from korvet.spark.errors import DataLoss, InvalidOption, UnknownTopic
from korvet.spark.metadata import MetadataClient
from korvet.spark.option_parser import parse_read
from korvet.spark.options import Connection, Selection
from korvet.spark.partitions import OffsetRange
from korvet.spark.plan.splits import group_batch_splits
from korvet.store.sync_store import SyncStore
from korvet.wire import batch_builder, compression
from korvet.wire.records import Record
from tests.spark.data_source_driver import Row, pieces, read, schema_of, source
from tests.spark.topic_log import LAYOUTS, Log, plain

layouts = pytest.mark.parametrize(("form", "mode"), LAYOUTS)


def as_row(topic: str, partition: int, record: Record, *, stamped: int = 0) -> Row:
    """Return the row that a record must become."""
    offset, timestamp, key, value, headers = record
    moment = datetime.fromtimestamp(timestamp // 1000, UTC).replace(
        microsecond=timestamp % 1000 * 1000
    )
    return {
        "key": key,
        "value": value,
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "timestamp": moment,
        "timestampType": stamped,
        "headers": [{"key": name, "value": each} for name, each in headers] or None,
    }


def mixed(count: int, seed: int) -> list[Record]:
    """Draw records of every shape: null and empty keys and values, headers, any length."""
    draw = random.Random(seed)

    def some(most: int) -> bytes | None:
        return draw.choice([None, b"", draw.randbytes(draw.randint(1, most))])

    return [
        (
            n,
            1_700_000_000_000 + draw.randint(0, 10**6),
            some(20),
            some(3000),
            [(f"h{i}", some(9)) for i in range(draw.choice([0, 0, 1, 3]))],
        )
        for n in range(count)
    ]


@layouts
@pytest.mark.parametrize(
    "codec", [compression.NONE, compression.GZIP, compression.LZ4, compression.ZSTD]
)
def test_every_column_comes_back_whatever_the_record(
    log: Log, form: str, mode: str, codec: int
) -> None:
    topic = log.create("orders", 2, form, mode)
    for n in range(6):
        log.append(topic, n % 2, mixed(50, seed=n), codec=codec)
    log.append(topic, 0, plain(300), codec=codec)
    found = read(log.url, subscribe="orders", includeHeaders="true")
    wanted = [
        as_row("orders", p, record)
        for (_, p), records in sorted(log.written.items())
        for record in records
    ]
    assert found == wanted


@layouts
def test_records_with_equal_fields_and_lengths_are_read(log: Log, form: str, mode: str) -> None:
    topic = log.create("alike", 1, form, mode)
    log.append(topic, 0, plain(20_000))
    log.append(topic, 0, [(n, 5, None, b"v", []) for n in range(200)])
    log.append(topic, 0, [(n, 5, b"k", None, []) for n in range(200)])
    log.append(topic, 0, [(n, 5 + n * 977, b"", b"", []) for n in range(200)])
    found = read(log.url, subscribe="alike", includeHeaders="true")
    assert found == [as_row("alike", 0, record) for record in log.written["alike", 0]]


@layouts
def test_a_log_append_time_topic_has_append_times(log: Log, form: str, mode: str) -> None:
    topic = log.create("stamped", 1, form, mode, message_timestamp_type="LogAppendTime", records=5)
    log.append(topic, 0, mixed(5, 1))
    found = read(log.url, subscribe="stamped", includeHeaders="true")
    assert found == [
        as_row("stamped", 0, record, stamped=1) for record in log.written["stamped", 0]
    ]


@pytest.mark.parametrize("mode", ["time", "dense"])
def test_foreign_entries_are_records(log: Log, mode: str) -> None:
    log.create("native", 1, "record", mode, records=3)
    log.store.command("XADD", "korvet:native:0", "*", "key", "k", "value", "v")
    log.store.command("XADD", "korvet:native:0", "*", "value", "only", "timestamp", "soon")
    found = read(log.url, subscribe="native", columns="key,value,offset")
    assert [(row["key"], row["value"]) for row in found[3:]] == [(b"k", b"v"), (None, b"only")]
    offsets = [row["offset"] for row in found]
    assert offsets == sorted(set(offsets))


@pytest.mark.parametrize("mode", ["time", "dense"])
@pytest.mark.parametrize("count", [1, 300])
def test_a_foreign_entry_without_a_time_has_the_time_of_reading(
    log: Log, mode: str, count: int
) -> None:
    log.create("native", 1, "record", mode)
    before = int(time.time() * 1000)
    for n in range(count):
        log.store.command("XADD", "korvet:native:0", "*", "value", b"%d" % n)
    log.store.command("XADD", "korvet:native:0", "*", "value", "v", "timestamp", "soon")
    found = read(log.url, subscribe="native")
    assert len(found) == count + 1
    assert all(before <= row["timestamp"].timestamp() * 1000 <= time.time() * 1000 for row in found)


@layouts
def test_only_requested_columns_are_built(log: Log, form: str, mode: str) -> None:
    topic = log.create("wide", 1, form, mode)
    written = log.append(topic, 0, mixed(40, 3)) + log.append(topic, 0, plain(100))
    for name in ("offset", "timestamp", "key", "value", "headers", "partition"):
        found = read(log.url, subscribe="wide", columns=name)
        assert found == [{name: as_row("wide", 0, record)[name]} for record in written]
    both = read(log.url, subscribe="wide", columns="value, Offset")
    assert [tuple(row) for row in both[:1]] == [("value", "offset")]


@layouts
def test_ranges_are_read_exactly_to_their_offsets(log: Log, form: str, mode: str) -> None:
    topic = log.create("cut", 1, form, mode)
    for n in range(5):
        log.append(topic, 0, plain(10) if n % 2 else mixed(10, n))
    offsets = [record[0] for record in log.written["cut", 0]]
    for low, high in [(0, 50), (3, 7), (9, 11), (10, 20), (13, 13), (49, 50), (0, 1)]:
        start = offsets[low]
        end = offsets[high] if high < 50 else offsets[-1] + 1
        found = read(
            log.url,
            subscribe="cut",
            startingOffsets=json.dumps({"cut": {"0": start}}),
            endingOffsets=json.dumps({"cut": {"0": end}}),
        )
        assert [row["offset"] for row in found] == offsets[low:high]


@layouts
def test_splits_are_contiguous(log: Log, form: str, mode: str) -> None:
    topic = log.create("big", 2, form, mode)
    for _ in range(12):
        log.append(topic, 0, [(0, 5, b"k", os.urandom(700), []) for _ in range(200)])
    log.append(topic, 1, plain(10))
    whole = read(log.url, subscribe="big", columns="partition,offset")
    for options in (
        {"minPartitions": 7},
        {"maxRecordsPerPartition": 333},
        {"maxBytesPerPartition": "300k"},
        {"minPartitions": 9, "maxRecordsPerPartition": 500},
    ):
        cut = pieces(log.url, subscribe="big", **options)
        assert len(cut) > 3
        assert read(log.url, subscribe="big", columns="partition,offset", **options) == whole
        for (part, _, end), (other, start, _) in pairwise(cut):
            assert part != other or start == end
    for part, start, end in pieces(log.url, subscribe="big", maxRecordsPerPartition=333):
        records = log.written["big", int(part[-1])]
        assert 0 < len([record for record in records if start <= record[0] < end]) <= 333


@layouts
def test_there_are_at_least_min_partitions_splits(log: Log, form: str, mode: str) -> None:
    topic = log.create("small", 3, form, mode)
    log.create("none", 2, form, mode)
    for part in range(3):
        log.append(topic, part, plain(5 + 20 * part))
    columns = "partition,offset"
    whole = read(log.url, subscribe="small", columns=columns)
    assert len(whole) == 75
    for least in (4, 7, 40):
        cut = pieces(log.url, subscribe="small", minPartitions=least)
        assert len(cut) >= least
        assert read(log.url, subscribe="small", columns=columns, minPartitions=least) == whole
    assert len(pieces(log.url, subscribe="small", minPartitions=1000)) == 75
    assert pieces(log.url, subscribe="none", minPartitions=5) == []


@layouts
def test_join_partitions_groups_small_partitions(log: Log, form: str, mode: str) -> None:
    topic = log.create("many", 12, form, mode)
    log.create("none", 2, form, mode)
    for part in range(12):
        log.append(topic, part, plain(1 + part))
    for _ in range(4):
        log.append(topic, 7, [(0, 5, b"k", os.urandom(700), []) for _ in range(200)])
    columns = "partition,offset"
    whole = read(log.url, subscribe="many", columns=columns)
    for options, most in (
        ({}, 1),
        ({"maxBytesPerPartition": "300k"}, 8),
        ({"minPartitions": 5}, 9),
    ):
        given = {"subscribe": "many", "columns": columns, "joinPartitions": "true", **options}
        assert read(log.url, **given) == whole
        made = source(log.url, **given)
        group_batch_splits = made.reader(schema_of(made)).partitions()
        assert options.get("minPartitions", 1) <= len(group_batch_splits) <= most, len(
            group_batch_splits
        )
    assert read(log.url, subscribe="none", joinPartitions="true", minPartitions=3) == []


def test_a_read_of_many_partitions_has_fewer_tasks_by_default(log: Log) -> None:
    topic = log.create("many", 70)
    for part in range(70):
        log.append(topic, part, plain(1 + part % 3))
    whole = read(log.url, subscribe="many", columns="partition,offset")
    assert len(whole) == sum(1 + part % 3 for part in range(70))
    for options, count in (
        ({}, 35),
        ({"joinPartitions": "false"}, 70),
        ({"joinPartitions": "true"}, 1),
        ({"minPartitions": 50}, 70),
        ({"maxRecordsPerPartition": 2}, 93),
        ({"maxRecordsPerPartition": 3, "joinPartitions": "true"}, 1),
        ({"assign": json.dumps({"many": [*range(64)]})}, 64),
    ):
        given: dict[str, Any] = {"subscribe": "many", "columns": "partition,offset", **options}
        if "assign" in options:
            del given["subscribe"]
        made = source(log.url, **given)
        assert len(made.reader(schema_of(made)).partitions()) == count, options
        if "assign" not in options:
            assert read(log.url, **given) == whole


def test_a_topic_may_have_fewer_partitions_than_requested_tasks(log: Log) -> None:
    log.create("few", 2, records=1)
    assert len(read(log.url, subscribe="few", joinPartitions="true", minPartitions=9)) == 1


def test_a_trim_during_size_estimation_does_not_fail_the_read(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trim happens between the reads of a range's first and last index row."""
    topic = log.create("trimmed")
    for _ in range(20):
        log.append(topic, 0, plain(100, size=800))
    metadata = MetadataClient(Connection(log.url), log.store)
    asked = {"redis": log.url, "subscribe": "trimmed", "joinPartitions": "true"}
    options = parse_read(asked, streaming=False)
    whole = OffsetRange(metadata.logs(Selection(("trimmed",)))[0], 0, 2000)
    commands = SyncStore.commands

    def one_by_one(store: SyncStore, asked: Iterable[Sequence[Any]]) -> list[Any]:
        replies = []
        for each in asked:
            if each[0] == "ZREVRANGEBYSCORE":
                log.truncate(topic, 0, 2000)
            replies += commands(store, [each])
        return replies

    monkeypatch.setattr(SyncStore, "commands", one_by_one)
    assert group_batch_splits(metadata, options, [whole]) == [(whole,)]


def test_small_batches_are_split_and_counted_like_others(log: Log) -> None:
    topic = log.create("small", 1, "batch")
    for _ in range(1100):
        log.append(topic, 0, plain(1))
    cut = pieces(log.url, subscribe="small", maxRecordsPerPartition=950)
    assert [end - start for _, start, end in cut] in ([900, 200], [950, 150])
    with MetadataClient(Connection(log.url)) as metadata:
        [part] = metadata.logs(Selection(topics=("small",)))
        assert metadata.count([OffsetRange(part, 0, 1100), OffsetRange(part, 5, 5)]) == [1100, 0]


def test_records_without_a_time_pass_a_filter_before_1970(log: Log) -> None:
    topic = log.create("f", 1)
    log.append(topic, 0, [(0, -1, None, b"untimed", []), *plain(2)])
    filters = [GreaterThanOrEqual(("timestamp",), datetime(1960, 1, 1, tzinfo=UTC))]
    assert len(read(log.url, subscribe="f", filters=filters)) == 3


@pytest.mark.parametrize("mode", ["time", "dense"])
def test_a_filter_on_time_keeps_foreign_entries(log: Log, mode: str) -> None:
    topic = log.create("mixed", 1, "record", mode)
    for _ in range(2):
        log.append(topic, 0, plain(10, since=int(time.time() * 1000) - 10_000, size=10_000))
    log.store.command("XADD", "korvet:mixed:0", "*", "value", "native")
    [native] = [row for row in read(log.url, subscribe="mixed") if row["value"] == b"native"]
    log.append(topic, 0, plain(10, since=int(time.time() * 1000), size=10_000))
    since = native["timestamp"]
    for found in (
        read(log.url, filters=[GreaterThanOrEqual(("timestamp",), since)], subscribe="mixed"),
        read(log.url, startingTimestamp=int(since.timestamp() * 1000), subscribe="mixed"),
    ):
        assert b"native" in [row["value"] for row in found]


def test_options_may_name_partitions_that_a_filter_excludes(log: Log) -> None:
    topic = log.create("f", 2)
    for number in range(2):
        log.append(topic, number, plain(5))
    start = '{"f": {"0": 1, "1": 2}}'
    filters = [EqualTo(("partition",), 0)]
    found = read(log.url, subscribe="f", startingOffsets=start, filters=filters)
    assert [(row["partition"], row["offset"]) for row in found] == [(0, n) for n in range(1, 5)]


@layouts
def test_timestamps_select_start_and_end(log: Log, form: str, mode: str) -> None:
    topic = log.create("times", 2, form, mode)
    for n in range(4):
        log.append(topic, 0, plain(25, since=1000 + 25 * n))
    log.append(topic, 1, plain(10, since=1050))

    def times(**options: object) -> list[tuple[int, int]]:
        found = read(log.url, subscribe="times", **options)
        return [(row["partition"], int(row["timestamp"].timestamp() * 1000)) for row in found]

    assert times(startingTimestamp=1055, endingTimestamp=1058) == [
        (p, t) for p in (0, 1) for t in (1055, 1056, 1057)
    ]
    asked = json.dumps({"times": {"0": 1090, "1": 1059}})
    assert times(startingOffsetsByTimestamp=asked) == [
        *((0, t) for t in range(1090, 1100)),
        (1, 1059),
    ]
    late = json.dumps({"times": {"0": 1090, "1": 9999}})
    with pytest.raises(InvalidOption, match=r"startingOffsetsByTimestamp.*times-1.*9999"):
        times(startingOffsetsByTimestamp=late)
    assert (
        len(times(startingOffsetsByTimestamp=late, startingOffsetsByTimestampStrategy="latest"))
        == 10
    )


@pytest.mark.parametrize("names", ["offset", "offset,value"])
def test_a_compacted_batch_yields_the_remaining_records(log: Log, names: str) -> None:
    topic = log.create("thin", 1, "batch")
    whole = log.append(topic, 0, plain(10))
    [[raw_id, fields]] = log.store.command("XRANGE", "korvet:thin:0", "-", "+")
    staying = [whole[n] for n in (2, 3, 7)]
    fields[1] = bytes(batch_builder.retain_records(fields[1], 0, 9, staying))
    log.store.command("XTRIM", "korvet:thin:0", "MAXLEN", 0)
    log.store.command("DEL", "korvet:thin:0")
    log.store.command("XADD", "korvet:thin:0", raw_id, *fields)
    found = read(log.url, subscribe="thin", columns=names)
    assert [row["offset"] for row in found] == [2, 3, 7]


def test_topics_are_selected_by_name_pattern_or_partition(log: Log) -> None:
    for name in ("a.one", "a.two", "b"):
        topic = log.create(name, 3)
        for partition in range(3):
            log.append(topic, partition, plain(1))

    def parts(**options: object) -> list[str]:
        return [f"{r['topic']}-{r['partition']}" for r in read(log.url, **options)]

    assert parts(subscribe="b, a.one") == [f"{t}-{p}" for t in ("b", "a.one") for p in range(3)]
    assert parts(subscribePattern="a\\..*") == [
        f"{t}-{p}" for t in ("a.one", "a.two") for p in range(3)
    ]
    assert parts(assign='{"b": [2, 0]}') == ["b-0", "b-2"]
    assert parts(subscribePattern="one") == [f"a.one-{p}" for p in range(3)]
    assert parts(subscribePattern="^a") == parts(subscribePattern="a\\..*")
    assert parts(subscribePattern="^o$|^b$") == [f"b-{p}" for p in range(3)]
    assert parts(subscribePattern="nothing") == []
    with pytest.raises(UnknownTopic, match=r"'c'; there are a\.one, a\.two, b"):
        parts(subscribe="c")
    with pytest.raises(UnknownTopic, match="'b' has 3 partitions, and no partition 3"):
        parts(assign='{"b": [3]}')


@layouts
def test_trimmed_offsets_are_an_error_or_left_out(log: Log, form: str, mode: str) -> None:
    topic = log.create("trimmed", 1, form, mode)
    for _ in range(3):
        log.append(topic, 0, plain(10))
    offsets = [record[0] for record in log.written["trimmed", 0]]
    log.truncate(topic, 0, offsets[10])
    start = {"startingOffsets": json.dumps({"trimmed": {"0": offsets[3]}})}
    with pytest.raises(DataLoss, match=f"'trimmed' partition 0: offsets {offsets[3]} to"):
        read(log.url, subscribe="trimmed", **start)
    left = read(log.url, subscribe="trimmed", failOnDataLoss="false", **start)
    assert [row["offset"] for row in left] == offsets[10:]
    assert [row["offset"] for row in read(log.url, subscribe="trimmed")] == offsets[10:]


@pytest.mark.parametrize("form", ["record", "batch"])
def test_a_completely_trimmed_range_is_empty_if_data_loss_is_allowed(log: Log, form: str) -> None:
    topic = log.create("gone", 1, form, "time")
    offsets: list[int] = []
    while (
        len(offsets) < 20 or offsets[-10] == offsets[-11] + 1
    ):  # wait until the clock has advanced
        log.append(topic, 0, plain(10))
        offsets = [record[0] for record in log.written["gone", 0]]
    end = offsets[-11] + 1
    log.truncate(topic, 0, end)
    places = {
        "startingOffsets": json.dumps({"gone": {"0": offsets[3]}}),
        "endingOffsets": json.dumps({"gone": {"0": end}}),
    }
    assert read(log.url, subscribe="gone", failOnDataLoss="false", **places) == []
    with pytest.raises(DataLoss):
        read(log.url, subscribe="gone", **places)
    places["startingOffsets"] = json.dumps({"gone": {"0": end + 1}})
    with pytest.raises(InvalidOption, match="before its start"):
        read(log.url, subscribe="gone", failOnDataLoss="false", **places)


@layouts
def test_a_trim_between_planning_and_reading_is_noticed(log: Log, form: str, mode: str) -> None:
    from tests.spark.data_source_driver import schema_of, source

    topic = log.create("race", 1, form, mode)
    for _ in range(3):
        log.append(topic, 0, plain(10))
    made = source(log.url, subscribe="race")
    reader = made.reader(schema_of(made))
    [piece] = reader.partitions()
    log.truncate(topic, 0, log.written["race", 0][20][0])
    with pytest.raises(DataLoss, match="'race' partition 0"):
        list(reader.read(piece))
    made = source(log.url, subscribe="race", failOnDataLoss="false")
    found = list(made.reader(schema_of(made)).read(piece))
    assert sum(batch.num_rows for batch in found) == 10


@pytest.mark.parametrize("names", ["offset", "value"])
@layouts
def test_a_log_end_lost_between_planning_and_reading_is_noticed(
    log: Log, form: str, mode: str, names: str
) -> None:
    """As in a failover to a replica without the newest records."""
    from tests.spark.data_source_driver import schema_of, source

    topic = log.create("race", 1, form, mode, records=10)
    keys = [log.keys.partition("race", 0).stream, log.keys.partition("race", 0).log]
    replica = [log.store.command("DUMP", key) for key in keys]
    log.append(topic, 0, plain(5))
    readers, pieces = [], []
    for flag in ("true", "false"):
        made = source(log.url, subscribe="race", columns=names, failOnDataLoss=flag)
        readers.append(made.reader(schema_of(made)))
        pieces += readers[-1].partitions()
    for key, was in zip(keys, replica, strict=True):
        log.store.command("RESTORE", key, 0, was, "REPLACE")
    strict, lenient = readers
    with pytest.raises(DataLoss, match="Redis has lost data"):
        list(strict.read(pieces[0]))
    assert sum(batch.num_rows for batch in lenient.read(pieces[1])) == 10


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the replies with entries that are read."""
    replies: list[int] = []
    answered = RangeScan._receive

    def counted(scan: RangeScan, start: int, stop: int | None, most: int) -> XRangeReply:
        replies.append(most)
        return answered(scan, start, stop, most)

    monkeypatch.setattr(RangeScan, "_receive", counted)
    return replies


def test_offsets_of_a_dense_log_without_gaps_need_no_entry_read(
    log: Log, unread: list[int]
) -> None:
    topic = log.create("dense", 2)
    for n in range(3):
        log.append(topic, n % 2, plain(50))
    log.store.command("XADD", "korvet:dense:1", "*", "value", "native")
    log.truncate(topic, 0, 20)
    where = json.dumps({"dense": {"0": 30, "1": 0}})
    found = read(
        log.url, subscribe="dense", columns="offset,topic,partition", startingOffsets=where
    )
    expected = [("dense", 0, n) for n in range(30, 100)] + [("dense", 1, n) for n in range(51)]
    assert [(r["topic"], r["partition"], r["offset"]) for r in found] == expected
    assert not unread


@pytest.mark.parametrize("mode", ["time", "dense"])
def test_foreign_entries_of_unknown_size_are_read_in_small_chunks(
    log: Log, unread: list[int], mode: str
) -> None:
    log.create("mixed", 1, "record", mode, records=500)
    read(log.url, subscribe="mixed")
    assert max(unread) > 500
    unread.clear()
    for _ in range(800):
        log.store.command("XADD", "korvet:mixed:0", "*", "value", b"v" * 50_000)
    assert len(read(log.url, subscribe="mixed")) == 1300
    assert unread[0] == FOREIGN_ENTRIES and max(unread) < 600
    assert unread[-1] <= RecordDecoder.chunk_bytes // 50_000


@pytest.mark.parametrize("gone", [0, 17, 49])
def test_a_gap_in_a_dense_log_is_not_reported_as_a_record(
    log: Log, unread: list[int], gone: int
) -> None:
    topic = log.create("gap", 1, records=50)
    log.store.command("XDEL", "korvet:gap:0", f"{DENSE_MS}-{gone}")
    found = [row["offset"] for row in read(log.url, subscribe="gap", columns="offset")]
    assert found == [n for n in range(50) if n != gone]
    log.store.command("XADD", "korvet:gap:0", f"{DENSE_MS}-60", "value", "ahead")
    log.append(topic, 0, plain(2))
    found = [row["offset"] for row in read(log.url, subscribe="gap", columns="offset")]
    assert found == [*(n for n in range(50) if n != gone), 60, 61, 62]
    assert unread


def test_an_emptied_log_has_no_dense_range(log: Log) -> None:
    log.create("empty", 1, records=5)
    log.store.command("XTRIM", "korvet:empty:0", "MAXLEN", 0)
    assert read(log.url, subscribe="empty", columns="offset") == []
    log.store.command("DEL", "korvet:empty:0")
    assert read(log.url, subscribe="empty", columns="offset") == []


@pytest.mark.parametrize("mode", ["dense", "time"])
def test_records_with_headers_of_the_same_names_are_read_as_columns(
    log: Log, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        RecordDecoder, "_decode_singly", lambda *_: pytest.fail("they were read singly")
    )
    topic = log.create("traced", 1, "record", mode)
    named = [
        (
            *record[:4],
            [("trace", b"%d" % n), ("none", None), ("x.header.y", b"" if n % 3 else b"z")],
        )
        for n, record in enumerate(plain(40))
    ]
    written = log.append(topic, 0, named)
    found = read(log.url, subscribe="traced", includeHeaders=True)
    assert found == [as_row("traced", 0, record) for record in written]
    cut = [
        as_row("traced", 0, record)["headers"] for record in written if record[0] > written[5][0]
    ]
    where = json.dumps({"traced": {"0": written[6][0]}})
    found = read(log.url, subscribe="traced", columns="headers,offset", startingOffsets=where)
    assert [row["headers"] for row in found] == cut
    found = read(log.url, subscribe="traced")
    assert [row["value"] for row in found] == [record[3] for record in written]


@layouts
def test_a_connection_that_is_cut_while_a_chunk_is_in_use_loses_nothing(
    log: Log, form: str, mode: str
) -> None:
    from tests.spark.data_source_driver import schema_of, source

    topic = log.create("slow", 1, form, mode)
    written = [each for _ in range(30) for each in log.append(topic, 0, plain(60, size=2000))]
    made = source(log.url, subscribe="slow", columns="offset,value")
    reader = made.reader(schema_of(made))
    [piece] = reader.partitions()
    found, killed = [], 0
    for batch in reader.read(piece):
        found += batch.column(0).to_pylist()
        if len(found) < len(written):
            killed += log.store.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    assert found == [record[0] for record in written]
    assert killed


def test_a_table_is_read_with_one_row_for_each_key(log: Log) -> None:
    topic = log.create("stock", 2, table_enable="true")
    for n in range(3):
        log.append(topic, 0, [(k, 1000, b"k%d" % k, b"%d" % n, []) for k in range(2000)])
    log.append(topic, 1, [(0, 1000, b"k1", b"other", []), (1, 1000, None, b"no key", [])])
    partition = log.keys.partition("stock", 0, topic.id)
    log.store.command("XADD", partition.stream, "*", "key", "k7", "value", "native")
    log.append(topic, 0, [(0, 1000, b"k9", None, [])])
    found = read(log.url, subscribe="stock", table="true")
    values = {(row["partition"], row["key"]): row["value"] for row in found}
    expected = {(0, b"k%d" % k): b"2" for k in range(2000)}
    expected |= {(0, b"k7"): b"native", (1, b"k1"): b"other"}
    del expected[(0, b"k9")]
    assert values == expected and len(found) == len(values)
    log.store.command("XTRIM", partition.stream, "MAXLEN", 0)
    assert read(log.url, subscribe="stock", table="true", columns="key") == [
        {"key": row["key"]} for row in found
    ]


def test_a_topic_without_a_table_is_named(log: Log) -> None:
    log.create("orders")
    with pytest.raises(InvalidOption, match="topic 'orders' has none"):
        read(log.url, subscribe="orders", table="true")
