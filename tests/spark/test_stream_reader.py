"""Check streams in-process, driven like Spark does: pickled, with a checkpoint, restarted."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from korvet.spark.batch_reader import ranges_of
from korvet.spark.errors import DataLoss, TopicChanged, TopicRecreated
from korvet.spark.metadata import MetadataClient
from korvet.spark.options import Selection
from korvet.spark.partitions import PartitionLog
from korvet.spark.plan import read_limits
from korvet.spark.plan.read_limits import allocate_records
from korvet.spark.stream_reader import StreamReader
from korvet.store.sync_store import SyncStore
from tests.spark.data_source_driver import read, schema_of, sent, source
from tests.spark.topic_log import LAYOUTS, Log, plain

layouts = pytest.mark.parametrize(("form", "mode"), LAYOUTS)
Offset = dict[str, dict[str, Any]]


class Query:
    """A streaming query with a checkpoint: the steps of Spark 4.1."""

    def __init__(self, url: str, **options: object) -> None:
        self._made = source(url, **options)
        self._schema = schema_of(self._made)
        self.checkpoint: list[Offset] = []
        self.rows: list[tuple[str, int, int]] = []
        self.reader = self._fresh()

    def _fresh(self) -> StreamReader:
        reader = sent(self._made).streamReader(self._schema)
        assert isinstance(reader, StreamReader)
        return reader

    def restart(self) -> None:
        """Restart the driver: only the checkpoint is left."""
        self.reader.stop()
        self.reader = self._fresh()
        if self.checkpoint:
            last = through_json(self.checkpoint[-1])
            assert self.reader.partitions(last, last) == []

    def trigger(self) -> int:
        """Run one micro-batch if there is new data; return its number of rows."""
        end = through_json(self.reader.latestOffset())
        if not self.checkpoint:
            self.checkpoint.append(through_json(self.reader.initialOffset()))
        start = self.checkpoint[-1]
        if end == start:
            return 0
        found = self.batch(start, end)
        assert found == self.batch(start, end), "a batch read again is the same batch"
        self.rows += found
        self.checkpoint.append(end)
        self.reader.commit(end)
        return len(found)

    def die_in_a_batch(self, meanwhile: Callable[[], object]) -> None:
        """Log the end of the next batch, kill the driver, and run the batch again."""
        end = through_json(self.reader.latestOffset())
        start = self._start()
        if self.checkpoint and end == start:
            return
        planned = self.batch(start, end)
        meanwhile()
        self.reader = self._fresh()
        assert self.batch(self._start(), end) == planned
        self.rows += planned
        self.checkpoint.append(end)

    def _start(self) -> Offset:
        """Return the start of the next batch; the source resolves that of the first."""
        return self.checkpoint[-1] if self.checkpoint else self.reader.initialOffset()

    def batch(self, start: Offset, end: Offset) -> list[tuple[str, int, int]]:
        found: list[tuple[str, int, int]] = []
        for piece in self.reader.partitions(through_json(start), through_json(end)):
            for batch in sent(self.reader).read(sent(piece)):
                found += [
                    (row["topic"], row["partition"], row["offset"]) for row in batch.to_pylist()
                ]
        return found


def through_json(offset: Offset) -> Offset:
    copy: Offset = json.loads(json.dumps(offset))
    return copy


def all_of(log: Log) -> list[tuple[str, int, int]]:
    return [(t, p, r[0]) for (t, p), records in sorted(log.written.items()) for r in records]


@layouts
def test_a_stream_gives_every_record_once_across_restarts(log: Log, form: str, mode: str) -> None:
    topic = log.create("s", 2, form, mode, records=10)
    query = Query(log.url, subscribe="s", startingOffsets="earliest")
    assert query.trigger() == 10 and query.trigger() == 0
    log.append(topic, 1, plain(5))
    query.restart()
    assert query.trigger() == 5
    query.restart()
    assert query.trigger() == 0
    assert sorted(query.rows) == all_of(log)


@layouts
def test_a_stream_from_latest_starts_at_the_end_of_its_first_call(
    log: Log, form: str, mode: str
) -> None:
    topic = log.create("s", 1, form, mode, records=10)
    query = Query(log.url, subscribe="s")
    query.reader.latestOffset()
    behind = log.append(topic, 0, plain(3))
    assert query.trigger() == 3
    assert [offset for *_, offset in query.rows] == [record[0] for record in behind]


@layouts
def test_a_trigger_takes_at_most_so_many_records(log: Log, form: str, mode: str) -> None:
    topic = log.create("s", 3, form, mode)
    for n in range(20):
        log.append(topic, n % 2, plain(50))
    log.append(topic, 2, plain(1))
    query = Query(log.url, subscribe="s", startingOffsets="earliest", maxOffsetsPerTrigger=130)
    sizes = []
    while size := query.trigger():
        sizes.append(size)
        query.restart()
    assert sizes == [130] * 7 + [91]
    assert sorted(query.rows) == all_of(log)


@pytest.mark.parametrize("mode", ["time", "dense"])
def test_a_trigger_limit_holds_for_a_log_without_an_index(log: Log, mode: str) -> None:
    """A call counts only part of many foreign entries; further calls count the rest."""
    log.create("s", 1, "record", mode)
    stream = log.keys.partition("s", 0).stream
    adds = "for n = 1, 2000 do redis.call('XADD', KEYS[1], '*', 'value', n) end"
    for _ in range(12):
        log.store.command("EVAL", adds, 1, stream)
    query = Query(log.url, subscribe="s", startingOffsets="earliest", maxOffsetsPerTrigger=21_000)
    assert [query.trigger(), query.trigger(), query.trigger()] == [21_000, 3_000, 0]
    offsets = [row[2] for row in query.rows]
    assert offsets == sorted(set(offsets)) and len(offsets) == 24_000


@layouts
def test_a_trigger_waits_for_enough_records_up_to_its_delay(
    log: Log, form: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(read_limits, "monotonic", lambda: now[0])
    topic = log.create("s", 2, form, mode, records=3)
    least = {"minOffsetsPerTrigger": 10, "maxTriggerDelay": "60s"}
    query = Query(log.url, subscribe="s", startingOffsets="earliest", **least)
    assert query.trigger() == 3, "the first is not put off"
    log.append(topic, 0, plain(6))
    log.append(topic, 1, plain(3))
    assert query.trigger() == 0, "too few"
    log.append(topic, 1, plain(1))
    assert query.trigger() == 10, "enough"
    log.append(topic, 0, plain(2))
    now[0] += 59
    assert query.trigger() == 0
    now[0] += 1
    assert query.trigger() == 2, "long enough"
    log.append(topic, 0, plain(4))
    assert query.trigger() == 0
    query.restart()
    assert query.trigger() == 4
    assert sorted(query.rows) == all_of(log)


def test_enough_records_are_still_taken_limit_by_limit(log: Log) -> None:
    topic = log.create("s", 1, records=10)
    both = {"minOffsetsPerTrigger": 4, "maxOffsetsPerTrigger": 5}
    query = Query(log.url, subscribe="s", startingOffsets="earliest", **both)
    log.append(topic, 0, plain(3))
    assert [query.trigger() for _ in range(4)] == [5, 5, 0, 0]
    log.append(topic, 0, plain(1))
    assert query.trigger() == 4


def test_an_available_now_run_waits_for_no_more(log: Log) -> None:
    log.create("s", 1, records=10)
    both = {"minOffsetsPerTrigger": 4, "maxOffsetsPerTrigger": 8}
    query = Query(log.url, subscribe="s", startingOffsets="earliest", **both)
    query.reader.prepareForTriggerAvailableNow()
    assert [query.trigger() for _ in range(3)] == [8, 2, 0]


@layouts
def test_new_partitions_and_new_topics_are_read_from_their_beginning(
    log: Log, form: str, mode: str
) -> None:
    first = log.create("n.one", 1, form, mode, records=2)
    query = Query(log.url, subscribePattern="n\\..*", startingOffsets="earliest")
    assert query.trigger() == 2
    second = log.create("n.two", 2, form, mode)
    log.append(second, 1, plain(4))
    assert query.trigger() == 4
    query.restart()
    log.append(first, 0, plain(1))
    assert query.trigger() == 1
    assert sorted(query.rows) == all_of(log)


@layouts
def test_a_trim_above_the_checkpoint_ends_the_stream_or_is_skipped(
    log: Log, form: str, mode: str
) -> None:
    topic = log.create("s", 1, form, mode, records=5)
    strict, lenient = (
        Query(log.url, subscribe="s", startingOffsets="earliest", failOnDataLoss=flag)
        for flag in ("true", "false")
    )
    for query in (strict, lenient):
        assert query.trigger() == 5
    log.append(topic, 0, plain(5))
    log.append(topic, 0, plain(5))
    log.truncate(topic, 0, log.written["s", 0][10][0])
    with pytest.raises(DataLoss, match="'s' partition 0"):
        strict.trigger()
    assert lenient.trigger() == 5


def test_a_topic_created_again_is_not_mistaken_for_the_old_one(log: Log) -> None:
    log.create("s", 1, records=5)
    query = Query(log.url, subscribe="s", startingOffsets="earliest")
    assert query.trigger() == 5
    log.store.command("FLUSHALL")
    log.create("s", 1, records=9)
    with pytest.raises(TopicRecreated, match="deleted and created again"):
        query.trigger()


@layouts
def test_a_failed_first_batch_is_repeated_unchanged(log: Log, form: str, mode: str) -> None:
    topic = log.create("s", 1, form, mode, records=10)
    query = Query(log.url, subscribe="s")
    start = query.reader.initialOffset()
    wanted = [("s", 0, record[0]) for record in log.append(topic, 0, plain(5))]
    end = through_json(query.reader.latestOffset())
    assert query.batch(start, end) == wanted
    # Spark logs the end before it dies; the source resolves the start again.
    log.append(topic, 0, plain(3))
    topic = log.grow(topic, 2)
    log.append(topic, 1, plain(2))
    query.restart()
    again = query.reader.initialOffset()
    assert again != start
    assert query.batch(again, end) == wanted
    query.checkpoint.append(end)
    assert query.trigger() == 5
    query.restart()
    assert query.trigger() == 0


def test_a_repeated_batch_reads_a_new_partition_from_its_recorded_start(log: Log) -> None:
    topic = log.create("s", 1, records=3)
    query = Query(log.url, subscribe="s", startingOffsets="earliest")
    assert query.trigger() == 3
    topic = log.grow(topic, 2)
    log.append(topic, 1, plain(10))
    end = through_json(query.reader.latestOffset())
    assert len(query.batch(query.checkpoint[-1], end)) == 10
    log.truncate(topic, 1, 7)
    query.restart()
    with pytest.raises(DataLoss, match="'s' partition 1: offsets 0 to 9"):
        query.batch(query.checkpoint[-1], end)


def test_a_stream_that_found_no_topic_begins_with_all_of_the_first(log: Log) -> None:
    query = Query(log.url, subscribePattern="p.*", maxOffsetsPerTrigger=4)
    assert query.trigger() == 0
    query.checkpoint.append(through_json(query.reader.latestOffset()))
    query.restart()
    log.create("p.one", 1, records=10)
    assert [query.trigger() for _ in range(4)] == [4, 4, 2, 0]


def test_a_repeated_first_batch_has_its_recorded_start(log: Log) -> None:
    topic = log.create("s", 1, records=5)
    query = Query(log.url, subscribe="s", startingOffsets='{"s": {"0": 2}}')
    start = query.reader.initialOffset()
    end = through_json(query.reader.latestOffset())
    wanted = query.batch(start, end)
    log.grow(topic, 2)
    again = query._fresh()
    assert again.partitions(end, end) == []
    query.reader = again
    assert query.batch(through_json(again.initialOffset()), end) == wanted


def test_the_tasks_of_a_batch_do_not_depend_on_the_order_of_topics(log: Log) -> None:
    for name in "ab":
        log.append(log.create(name, 2), 1, plain(3))
    one, other = (
        Query(log.url, subscribe=names, startingOffsets="earliest") for names in ("a,b", "b,a")
    )
    start, end = one.reader.initialOffset(), through_json(one.reader.latestOffset())
    assert ranges(one, start, end) == ranges(other, start, end)


def test_a_repeated_first_batch_fails_if_its_records_were_trimmed(log: Log) -> None:
    topic = log.create("s", 1, records=10)
    query = Query(log.url, subscribe="s", startingOffsets="earliest")
    query.reader.initialOffset()
    end = through_json(query.reader.latestOffset())
    log.truncate(topic, 0, log.written["s", 0][7][0])
    query.restart()
    with pytest.raises(DataLoss, match="'s' partition 0"):
        query.batch(query.reader.initialOffset(), end)


def test_a_trigger_without_anything_new_ends_where_it_starts(log: Log) -> None:
    log.create("s", 1, records=10)
    query = Query(log.url, subscribe="s", startingOffsets="earliest")
    assert query.trigger() == 10
    assert query.reader.latestOffset() == query.checkpoint[-1]


def test_a_topic_created_again_between_planning_and_reading_yields_no_old_records(
    log: Log,
) -> None:
    log.create("s", 1, records=5)
    strict, lenient = (
        Query(log.url, subscribe="s", startingOffsets="earliest", failOnDataLoss=flag)
        for flag in ("true", "false")
    )
    planned = []
    for query in (strict, lenient):
        start = query.reader.initialOffset()
        end = through_json(query.reader.latestOffset())
        planned.append((query, start, end, query.reader.partitions(start, end)))
    log.store.command("FLUSHALL")
    log.create("s", 1, records=9)
    for query, start, end, [piece] in planned:
        if query is strict:
            with pytest.raises(TopicChanged, match="created again"):
                list(query.reader.read(piece))
            with pytest.raises(TopicRecreated):
                query.batch(start, end)
        else:
            assert list(query.reader.read(piece)) == []
            assert query.batch(start, end) == []
            query.checkpoint.append(end)
            assert query.trigger() == 9


def test_a_topic_deleted_during_planning_is_looked_up_again(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.create("p.one", 1, records=3)
    query = Query(log.url, subscribePattern="p.*", startingOffsets="earliest")
    listed = MetadataClient.logs
    calls = 0

    def logs(metadata: MetadataClient, selection: Selection) -> list[PartitionLog]:
        nonlocal calls
        calls += 1
        found = listed(metadata, selection)
        gone = [msgspec.structs.replace(part, topic="p.was") for part in found]
        return found + gone if calls % 2 else found

    monkeypatch.setattr(MetadataClient, "logs", logs)
    assert query.trigger() == 3
    assert read(log.url, subscribePattern="p.*")[0]["topic"] == "p.one"
    monkeypatch.setattr(MetadataClient, "logs", lambda *_: logs(*_) + logs(*_))
    with pytest.raises(TopicChanged, match=r"p\.was-0 does not exist"):
        query.trigger()


def test_a_deleted_topic_ends_the_stream(log: Log) -> None:
    topic = log.create("s.a", 1)
    log.create("s.b", 1)
    log.append(topic, 0, plain(5))
    query = Query(log.url, subscribePattern="s.*", startingOffsets="earliest")
    assert query.trigger() == 5
    log.store.command("HDEL", "korvet:topics", "s.a")
    with pytest.raises(DataLoss, match=r"s\.a-0.*Start with a new checkpoint"):
        query.trigger()


def test_a_batch_read_accepts_a_checkpoints_offset_as_its_start(log: Log) -> None:
    from tests.spark.data_source_driver import read

    topic = log.create("s", 1, records=5)
    query = Query(log.url, subscribe="s", startingOffsets="earliest")
    query.trigger()
    behind = log.append(topic, 0, plain(2))
    found = read(log.url, subscribe="s", startingOffsets=json.dumps(query.checkpoint[-1]))
    assert [row["offset"] for row in found] == [record[0] for record in behind]


@layouts
def test_a_repeated_batch_has_the_same_splits_after_appends_and_trims(
    log: Log, form: str, mode: str
) -> None:
    """After a crash, a writer identifies the tasks of the repeated batch by their numbers."""
    topic = log.create("s", 2, form, mode)
    cuts = [log.append(topic, 0, plain(100, size=1000))[0][0] for _ in range(20)]
    end_by_growth: list[int] = []
    for behind in range(1, 8):
        query = Query(
            log.url, subscribe="s", maxBytesPerPartition="200k", minPartitions=3 + behind % 2
        )
        start, end = {"s": {"0": cuts[behind], "1": 0}}, query.reader.latestOffset()
        before = ranges(query, start, end)
        # One record more each time: at some point an index row is added.
        log.append(topic, 0, plain(10 * behind, size=1000))
        log.truncate(topic, 0, cuts[behind])
        query.restart()
        assert ranges(query, start, end) == before
        end_by_growth.append(len(before))
    assert min(end_by_growth) > 3


def test_a_repeated_batch_has_the_same_splits_after_a_trim_during_planning(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = log.create("s", 1)
    for _ in range(20):
        log.append(topic, 0, plain(10, size=8000))
    query = Query(log.url, subscribe="s", maxBytesPerPartition="1k")
    start, end = {"s": {"0": 50}}, query.reader.latestOffset()
    planned = ranges(query, start, end)
    commands = SyncStore.commands

    def trimmed(store: SyncStore, asked: Any) -> Any:
        asked = list(asked)
        found = commands(store, asked)
        if asked[0][0] == "ZCOUNT":
            log.truncate(topic, 0, 40)
        return found

    monkeypatch.setattr(SyncStore, "commands", trimmed)
    assert len(planned) > 5 and ranges(query, start, end) == planned


@layouts
def test_a_repeated_batch_has_the_splits_of_its_plan_after_options_changed(
    log: Log, form: str, mode: str
) -> None:
    topic = log.create("s", 2, form, mode)
    for _ in range(20):
        log.append(topic, 0, plain(100, size=1000))
    start = {"s": {"0": 0, "1": 0}}
    planned: list[dict[str, object]] = [
        {},
        {"maxBytesPerPartition": "200k"},
        {"minPartitions": 5},
        {"maxRecordsPerPartition": 300},
        {"maxRecordsPerPartition": 40, "joinPartitions": "true"},
    ]
    queries = [
        Query(log.url, subscribe="s", startingOffsets="earliest", **options) for options in planned
    ]
    counts = set()
    ends = [through_json(query.reader.latestOffset()) for query in queries]
    for query, end in zip(queries, ends, strict=True):
        before = ranges(query, start, end)
        assert all(ranges(other, start, end) == before for other in queries)
        assert ("/splits" in end) == (query is not queries[0])
        counts.add(len(before))
    assert len(counts) == len(planned)


def test_a_stream_accepts_a_checkpoints_offset_as_its_start(log: Log) -> None:
    topic = log.create("s", 2, records=10)
    query = Query(log.url, subscribe="s", startingOffsets="earliest", minPartitions=3)
    assert query.trigger() == 10
    log.append(topic, 1, plain(3))
    other = Query(log.url, subscribe="s", startingOffsets=json.dumps(query.checkpoint[-1]))
    assert other.trigger() == query.trigger() == 3


def ranges(query: Query, start: Offset, end: Offset) -> list[tuple[int, int, int, int]]:
    """Return the ranges that tasks read, with the number of the task."""
    tasks = query.reader.partitions(through_json(start), through_json(end))
    found = [(n, each) for n, task in enumerate(tasks) for each in ranges_of(task)]
    return [(n, each.log.partition, each.start, each.end) for n, each in found]


def test_an_available_now_run_leaves_new_partitions_to_the_next(log: Log) -> None:
    topic = log.create("s", 1, records=10)
    query = Query(log.url, subscribe="s", startingOffsets="earliest", maxOffsetsPerTrigger=4)
    query.reader.prepareForTriggerAvailableNow()
    assert query.trigger() == 4
    topic = log.grow(topic, 3)
    sizes = []
    for _ in range(5):
        log.append(topic, 0, plain(5))
        log.append(topic, 1, plain(5))
        sizes.append(query.trigger())
    assert sizes == [4, 2, 0, 0, 0]
    query.restart()
    while query.trigger():
        pass
    assert sorted(query.rows) == all_of(log)


def test_a_log_that_lost_its_end_is_not_read_again(log: Log) -> None:
    topic = log.create("s", 1, records=10)
    copy = log.store.command("DUMP", "korvet:s:0"), log.store.command("DUMP", "{korvet:s:0}:log")
    log.append(topic, 0, plain(5))
    strict, lenient = (
        Query(log.url, subscribe="s", startingOffsets="earliest", failOnDataLoss=flag)
        for flag in ("true", "false")
    )
    assert strict.trigger() == lenient.trigger() == 15
    for key, was in zip(("korvet:s:0", "{korvet:s:0}:log"), copy, strict=True):
        log.store.command("RESTORE", key, 0, was, "REPLACE")
    with pytest.raises(DataLoss, match=r"has lost data: .* 10 on. Use the Redis .* failOnDataLoss"):
        strict.trigger()
    assert lenient.trigger() == 0
    log.append(topic, 0, plain(3))
    assert lenient.trigger() == 3


def test_small_partitions_do_not_wait_for_large_ones() -> None:
    assert allocate_records([20_000, 1], 500) == [499, 1]
    assert allocate_records([900, 0, 1, 99], 10) == [7, 0, 1, 2]
    fewer = [allocate_records([5, 0, 5, 5], 2, turn) for turn in range(0, 6, 2)]
    assert [sum(each) for each in zip(*fewer, strict=True)] == [2, 0, 2, 2]


@pytest.mark.parametrize(
    ("counts", "most"), [([10, 0, 5], 7), ([1, 1, 1], 2), ([1000, 1], 10), ([3], 2), ([5, 5], 9)]
)
def test_a_limit_is_allocated_completely_and_no_partition_gets_more_than_it_has(
    counts: list[int], most: int
) -> None:
    shares = allocate_records(counts, most)
    assert sum(shares) == most
    assert all(0 <= share <= count for share, count in zip(shares, counts, strict=True))
