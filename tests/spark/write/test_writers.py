"""Check in-process writes: the partitions and contents of rows, and that none is written twice."""

import pickle
import random
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from pathlib import Path
from pickletools import genops
from typing import Any

import pyarrow as pa
import pytest
from aiokafka.partitioner import murmur2
from pyspark.sql.types import BinaryType, StructType, _parse_datatype_json_string
from redis.exceptions import ReadOnlyError

from korvet.embedded_redis.server import RedisServer
from korvet.scripts import producer_state as scripts
from korvet.spark.errors import (
    DataLoss,
    InvalidDataFrame,
    NotEnoughReplicas,
    NotRepeatable,
    UnknownTopic,
)
from korvet.spark.metadata import FIRST_CONNECT_TIMEOUT_S, RECONNECT_TIMEOUT_S, MetadataClient
from korvet.spark.option_parser import parse_write
from korvet.spark.options import WriteOptions
from korvet.spark.write import durability_check, idempotent_writer, record_block, row_router
from korvet.spark.write.writers import (
    BatchWriter,
    StreamWriter,
    TaskCommit,
    commit_epoch,
    write_task,
)
from korvet.store.errors import CommandFailed
from korvet.store.sync_store import SyncStore
from tests.spark.data_source_driver import read, sent, source
from tests.spark.topic_log import LAYOUTS, Log, forgotten
from tests.support.redis_servers import OwnRedis

layouts = pytest.mark.parametrize(("form", "mode"), LAYOUTS)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def options(log: Log, **more: str) -> WriteOptions:
    return parse_write({"redis": log.url, "topic": "out", **more}, streaming=False)


def frame(count: int, seed: int = 0) -> dict[str, list[Any]]:
    """Return columns of rows with all kinds of keys and values."""
    draw = random.Random(seed)
    return {
        "key": [draw.choice([None, b"", b"k%d" % draw.randrange(50)]) for _ in range(count)],
        "value": [b"%d.%d" % (seed, n) for n in range(count)],
    }


def head(columns: dict[str, Any], rows: int) -> dict[str, Any]:
    """Return the first `count` rows of the columns."""
    return {name: column[:rows] for name, column in columns.items()}


def batches(columns: dict[str, Any], size: int = 100) -> Iterator[Any]:
    """Return the columns as Arrow batches."""
    whole = pa.table(columns)
    yield from whole.to_batches(max_chunksize=size)


def write(
    given: WriteOptions,
    columns: dict[str, Any],
    *,
    writer: str = "w",
    epoch: int = 0,
    task: int = 0,
    size: int = 100,
) -> TaskCommit:
    return sent(write_task(given, writer, epoch, task, batches(columns, size)))


def values(log: Log, topic: str = "out") -> list[bytes]:
    return [row["value"] for row in read(log.url, subscribe=topic, columns="value")]


@layouts
def test_rows_become_the_records_that_they_say(log: Log, form: str, mode: str) -> None:
    log.create("out", 3, form, mode)
    columns = {
        "key": pa.array(["a", None, "", "d"], pa.string()),
        "value": pa.array([b"1", None, b"", b"4"], pa.binary()),
        "headers": pa.array(
            [[{"key": "h", "value": b"x"}, {"key": "h", "value": None}], None, [], None], HEADERS
        ),
        "partition": pa.array([2, 1, 0, None], pa.int32()),
    }
    written = write(options(log), columns)
    assert (written.records, written.repeated) == (4, 0)
    found = read(log.url, subscribe="out", includeHeaders="true")
    by_value = {row["value"]: row for row in found}
    first, null, empty, last = (by_value[value] for value in (b"1", None, b"", b"4"))
    assert (first["key"], first["partition"]) == (b"a", 2)
    assert first["headers"] == [{"key": "h", "value": b"x"}, {"key": "h", "value": None}]
    assert (null["key"], null["partition"], null["headers"]) == (None, 1, None)
    assert (empty["key"], empty["partition"]) == (b"", 0)
    assert last["partition"] == (murmur2(b"d") & 0x7FFFFFFF) % 3


@layouts
def test_an_attempt_that_is_repeated_appends_only_what_was_missing(
    log: Log, form: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_block, "BATCH_RECORDS", 7)
    log.create("out", 3, form, mode)
    columns = frame(600)
    for rows in (30, 210, 211, 600):
        with pytest.raises(Killed):
            write_task(options(log), "w", 0, 5, iter(Dying(head(columns, rows))))
    written = write(options(log), columns, task=5, size=17)
    assert written.records == 600 and written.repeated > 0
    assert sorted(values(log)) == sorted(columns["value"])
    assert write(options(log), columns, task=5).repeated == 600
    assert len(values(log)) == 600


@layouts
def test_a_large_batch_is_copied_and_sent_in_small_parts(
    log: Log, form: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.create("out", 2, form, mode)
    large = 300_000
    columns = {"value": [b"%02d" % n * (large // 2) for n in range(40)]}
    copied, sent_together = [], []
    ask = SyncStore.run_many

    def asked(store: SyncStore, calls: Iterable[Any]) -> Any:
        todo = list(calls)
        sent_together.append(len(todo))
        return ask(store, todo)

    def rows_of(batch: Any, *more: Any) -> Any:
        copied.append(batch.nbytes)
        return rows(batch, *more)

    rows = row_router.RowRouter
    monkeypatch.setattr(row_router, "RowRouter", rows_of)
    monkeypatch.setattr(row_router, "MAX_BATCH_BYTES", 1_000_000)
    monkeypatch.setattr(record_block, "BATCH_BYTES", 150_000)
    monkeypatch.setattr(SyncStore, "run_many", asked)
    written = write(options(log), columns)
    assert written.records == 40 and len(copied) == 10
    assert max(copied) < 1_000_000 + large
    # Each record is larger than a batch, and two are as large as four full batches.
    assert max(sent_together) == 2
    monkeypatch.undo()
    assert sorted(values(log)) == columns["value"]


@layouts
@pytest.mark.parametrize("keyed", [True, False])
def test_partitions_added_between_two_attempts_get_no_row_twice(
    log: Log, form: str, mode: str, keyed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_block, "BATCH_RECORDS", 7)
    topic = log.create("out", 2, form, mode)
    columns = frame(600)
    if not keyed:
        del columns["key"]
    with pytest.raises(Killed):
        write_task(options(log), "w", 0, 5, iter(Dying(head(columns, 300))))
    log.grow(topic, 5)
    assert write(options(log), columns, task=5).records == 600
    assert write(options(log), columns, task=6).records == 600
    assert sorted(values(log)) == sorted(2 * columns["value"])
    log.store.run(log.keys.writer_commit(writer=log.keys.writer("w"), epoch=0, keep_ms=1000))
    write(options(log), frame(600), task=5, epoch=1)
    assert {row["partition"] for row in read(log.url, subscribe="out")} == set(range(5))


@layouts
def test_a_redis_that_lost_the_writers_key_gets_no_row_twice(
    log: Log, form: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a cluster a failover may lose the writer's key but not the partitions."""
    monkeypatch.setattr(record_block, "BATCH_RECORDS", 7)
    log.create("out", 2, form, mode)
    columns = frame(600)
    with pytest.raises(Killed):
        write_task(options(log), "w", 0, 5, iter(Dying(head(columns, 300))))
    for _ in range(2):
        log.store.command("DEL", log.keys.writer("w"))
        assert write(options(log), columns, task=5).records == 600
        log.store.run(log.keys.writer_commit(writer=log.keys.writer("w"), epoch=0, keep_ms=1000))
    assert sorted(values(log)) == sorted(columns["value"])


def test_partitions_remember_retryable_writers_longer(log: Log) -> None:
    def remembered() -> list[bool]:
        topic = log.keys.partition("out", 0)
        ids = map(int, log.store.command("HKEYS", topic.producers))
        return sorted(producer_id >= scripts.IDS_FROM for producer_id in ids)

    log.create("out", 1)
    schema = spark_schema({"value": "string"})
    sent(source(log.url, topic="out").writer(schema, False)).write(batches({"value": ["c"]}))
    assert remembered() == [False], "such a job cannot be run again"
    named = sent(source(log.url, topic="out", writeId="daily").writer(schema, False))
    named.write(batches({"value": ["a"]}))
    write(options(log), {"value": [b"a"]}, writer="query-1")
    assert remembered() == [False, True, True]


@layouts
def test_an_attempt_whose_rows_ended_early_can_be_repeated(
    log: Log, form: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark ends the iterator without an error if the source of the rows fails."""
    monkeypatch.setattr(record_block, "BATCH_RECORDS", 50)
    log.create("out", 2, form, mode)
    columns = frame(600)
    for rows in (30, 33, 36, 39, 42, 45, 48, 130, 131, 400):
        write(options(log), head(columns, rows), size=17)
    written = write(options(log), columns)
    assert (written.records, written.repeated) == (600, 400)
    assert sorted(values(log)) == sorted(columns["value"])
    changed = {**columns, "value": [*columns["value"][:-1], b"other"]}
    with pytest.raises(NotRepeatable):
        write(options(log), changed)
    assert sorted(values(log)) == sorted(columns["value"])


@layouts
def test_two_attempts_of_a_task_at_the_same_time_append_each_row_once(
    log: Log, form: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_block, "BATCH_RECORDS", 7)
    log.create("out", 2, form, mode)
    columns = frame(1500)

    def attempt(size: int) -> TaskCommit:
        return write(options(log), columns, size=size)

    with ThreadPoolExecutor(2) as attempts:
        found = list(attempts.map(attempt, (40, 90)))
    assert sum(each.records - each.repeated for each in found) == 1500
    assert sorted(values(log)) == sorted(columns["value"])


def test_buffered_rows_keep_only_their_own_memory(log: Log) -> None:
    """Rows are sorted by partition: each partition has buffered rows until the end."""
    log.create("out", 30, "batch", "dense")
    before, most = pa.total_allocated_bytes(), 0

    def sorted_rows() -> Iterator[Any]:
        nonlocal most
        for partition in range(30):
            value = b"%d" % partition * 1000
            columns = {"value": [value] * 1000, "partition": pa.array([partition] * 1000, "int32")}
            yield from pa.table(columns).to_batches()
            most = max(most, pa.total_allocated_bytes() - before)

    write_task(options(log), "w", 0, 0, sorted_rows())
    assert len(values(log)) == 30_000
    assert most < 16 << 20


@layouts
def test_buffered_bytes_are_bounded_and_rows_written_once(
    log: Log, form: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idempotent_writer, "MAX_BUFFERED_BYTES", 20_000)
    log.create("out", 40, form, mode)
    columns = frame(3000) | {"partition": pa.array([n % 40 for n in range(3000)], pa.int32())}

    def first_half() -> Iterator[Any]:
        yield from batches(head(columns, 1500))
        assert len(values(log)) > 700
        raise Killed

    with pytest.raises(Killed):
        write_task(options(log), "w", 0, 0, first_half())
    written = write(options(log), columns, size=370)
    assert written.records == 3000 and written.repeated > 700
    assert sorted(values(log)) == sorted(columns["value"])


class Killed(Exception):
    """A task is killed."""


class Dying:
    """Batches that end in an error: the rows so far are appended in part."""

    def __init__(self, columns: dict[str, Any]) -> None:
        self._columns = columns

    def __iter__(self) -> Iterator[Any]:
        yield from batches(self._columns, 50)
        raise Killed


def test_tasks_and_writers_are_kept_apart(log: Log) -> None:
    log.create("out", 1)
    columns = frame(10)
    for writer, task in (("w", 0), ("w", 1), ("v", 0)):
        assert write(options(log), columns, writer=writer, task=task).repeated == 0
    assert len(values(log)) == 30


def test_a_committed_epoch_is_skipped_and_the_next_is_written(log: Log) -> None:
    log.create("out", 2, "batch")
    given = options(log)
    for epoch in range(3):
        columns = frame(20, seed=epoch)
        commit_epoch(given, [write(given, columns, epoch=epoch), None])
        again = write(given, frame(33, seed=9), epoch=epoch)
        assert (again.records, again.repeated) == (0, 33)
    assert len(values(log)) == 60


def test_a_repeated_epoch_writes_no_row_twice(log: Log) -> None:
    log.create("out", 2)
    given = options(log)
    for epoch in (0, 1, 32767, 32768, 40000):
        for _ in range(3):
            write(given, frame(50, seed=epoch), epoch=epoch)
        commit_epoch(given, [write(given, frame(50, seed=epoch), epoch=epoch)])
    assert len(values(log)) == 250


def test_a_task_of_an_earlier_epoch_cannot_write(log: Log) -> None:
    log.create("out", 1)
    given = options(log)
    write(given, frame(5, seed=1), epoch=1)
    with pytest.raises(NotRepeatable, match="outdated"):
        write(given, frame(5, seed=0), epoch=0)
    assert values(log) == frame(5, seed=1)["value"]


@layouts
def test_a_first_batch_that_redis_rejects_is_not_reported_as_stored(
    log: Log, form: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.create("out", 1, form, mode)
    send, refused = SyncStore._send_many, 0

    def send_many(store: SyncStore, calls: Sequence[Any]) -> list[Any]:
        nonlocal refused
        if refused or len(calls) < 2:
            return send(store, calls)
        # A replica is promoted while batches are in flight.
        refused += 1
        return [
            ReadOnlyError("You can't write against a read only replica."),
            *send(store, calls[1:]),
        ]

    monkeypatch.setattr(SyncStore, "_send_many", send_many)
    columns = {"value": [b"%d" % n for n in range(9000)]}
    written = write(options(log), columns, size=9000)
    assert (refused, written.records) == (1, 9000)
    assert values(log) == columns["value"]


def test_a_task_with_wait_replicas_waits_for_replicas(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.create("out", 2)
    monkeypatch.setattr(durability_check, "REPLICA_TIMEOUT_S", 0.01)
    columns = {"value": [b"%d" % n for n in range(50)]}
    with pytest.raises(NotEnoughReplicas, match="did not reach replicas:1"):
        write(options(log, waitReplicas="1"), columns)
    ask = SyncStore.ask_copied
    asked: list[Any] = []

    def copied(store: SyncStore, *words: Any, fsync: bool = False) -> tuple[Any, bool]:
        asked.append(words[0])
        return ask(store, *words)[0], True

    monkeypatch.setattr(SyncStore, "ask_copied", copied)
    written = write(options(log, waitReplicas="1"), columns)
    assert (written.repeated, len(asked)) == (50, len(set(asked)))
    commit_epoch(options(log, waitReplicas="1"), [written])
    assert asked[-1] == ("HGET", log.keys.writer("w"), "committed")
    assert sorted(values(log)) == sorted(columns["value"])


@pytest.mark.parametrize(
    ("durability", "more", "late"),
    [
        ("replicas:1", {}, "replicas:1"),
        ("fsync", {}, "appendonly is disabled"),
        ("replicas:1", {"kafka.acks": "1"}, ""),
        ("memory", {}, ""),
    ],
)
def test_a_task_waits_for_what_the_topics_durability_says(
    log: Log, monkeypatch: pytest.MonkeyPatch, durability: str, more: dict[str, str], late: str
) -> None:
    """The server has no replica and no append-only file."""
    log.create("out", 2, durability=durability)
    monkeypatch.setattr(durability_check, "REPLICA_TIMEOUT_S", 0.01)
    columns = {"value": [b"%d" % n for n in range(50)]}
    with pytest.raises((NotEnoughReplicas, CommandFailed), match=late) if late else nullcontext():
        write(options(log, **more), columns)
    assert len(values(log)) == 50


@pytest.mark.parametrize("is_embedded", [True, False])
def test_a_task_waits_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_embedded: bool
) -> None:
    """The embedded server syncs nothing itself: there the task does."""
    with ExitStack() as stack:
        if is_embedded:
            url = stack.enter_context(RedisServer.launch(tmp_path / "data")).url
        else:
            own = OwnRedis(tmp_path)
            stack.callback(own.end)
            own.start()
            url = own.url
        log = Log(stack.enter_context(SyncStore.connect(url)), url)
        log.create("out", durability="fsync")
        assert write(options(log), {"value": [b"a"]}).records == 1
        monkeypatch.setattr(durability_check, "REPLICA_TIMEOUT_S", 0.01)
        with pytest.raises(NotEnoughReplicas, match=r"did not reach fsync\+replicas:1 "):
            write(options(log, waitReplicas="1"), {"value": [b"b"]}, epoch=1)


@pytest.mark.slow
def test_a_task_that_wrote_to_another_server_than_the_current_one_fails(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.create("out")
    ask = SyncStore.ask_copied

    def copied(store: SyncStore, *words: Any, fsync: bool = False) -> tuple[Any, bool]:
        store.command("DEL", log.keys.partition("out", 0).producers)
        return ask(store, *words)[0], True

    monkeypatch.setattr(SyncStore, "ask_copied", copied)
    with pytest.raises(DataLoss, match="out-0: Redis lost"):
        write(options(log, waitReplicas="1"), {"value": [b"a"]})


@pytest.mark.slow
@pytest.mark.parametrize("asked", [{}, {"waitReplicas": "1"}])
def test_a_task_that_wrote_to_a_replaced_master_fails(
    log: Log, monkeypatch: pytest.MonkeyPatch, asked: dict[str, str]
) -> None:
    """The server that got its rows still runs and has a replica, but is no longer the master."""
    ask = SyncStore.ask_copied
    monkeypatch.setattr(SyncStore, "ask_copied", lambda *words, fsync: (ask(*words)[0], True))
    log.create("out", 2, records=3)
    look_again = SyncStore.look_again
    columns = {"value": [b"%d" % n for n in range(50)], "partition": [0, 1] * 25}
    with forgotten(log):
        # A new connection finds the new master once this one is closed.
        monkeypatch.setattr(SyncStore, "look_again", lambda store: store.command("FLUSHALL"))
        with pytest.raises(DataLoss, match="out-0: Redis lost"):
            write(options(log, **asked), columns)
        monkeypatch.setattr(SyncStore, "look_again", look_again)
    assert write(options(log), columns).records == 50
    assert len(values(log)) == 53


def test_an_epoch_fails_if_a_failover_lost_records_of_a_finished_task(log: Log) -> None:
    log.create("out", 2)
    columns = {"value": [b"%d" % n for n in range(50)], "partition": [0, 1] * 25}
    first = write(options(log), columns)
    with forgotten(log):
        second = write(options(log), columns, task=1)
    with pytest.raises(DataLoss, match="out-0: Redis lost"):
        commit_epoch(options(log), [first, second])
    again = write(options(log), columns, task=1)
    assert (again.records, again.repeated) == (50, 0)
    commit_epoch(options(log), [first, again])
    assert len(values(log)) == 100
    assert write(options(log), columns).repeated == 50


def test_the_next_epoch_warns_of_committed_ones_that_redis_lost(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    log.create("out")
    for epoch in range(2):
        commit_epoch(options(log), [write(options(log), {"value": [b"%d" % epoch]}, epoch=epoch)])
    with forgotten(log):
        commit_epoch(options(log), [write(options(log), {"value": [b"2"]}, epoch=2)])
    assert not caplog.messages
    commit_epoch(options(log), [write(options(log), {"value": [b"3"]}, epoch=3)])
    assert "no commit after epoch 1, and this is epoch 3" in caplog.text
    assert values(log) == [b"0", b"1", b"3"]


def test_a_task_commit_is_pickled_without_other_classes_of_korvet(log: Log) -> None:
    log.create("out")
    found = write(options(log), {"value": [b"a"]})
    named = [arg for op, arg, _ in genops(pickle.dumps(found, 2)) if op.name == "GLOBAL"]
    assert [each for each in named if "korvet" in each] == ["korvet.spark.write.writers TaskCommit"]
    commit_epoch(options(log), [sent(found)])
    assert write(options(log), {"value": [b"a"]}).repeated == 1


def test_an_epoch_followed_by_a_later_one_has_lost_nothing(log: Log) -> None:
    log.create("out")
    first = write(options(log), {"value": [b"a"]})
    write(options(log), {"value": [b"b"]}, epoch=1)
    commit_epoch(options(log), [first])


def test_acknowledged_records_that_redis_lost_are_reported(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.create("out", 1, "batch")
    send, pipelines = SyncStore._send_many, 0

    def send_many(store: SyncStore, calls: Sequence[Any]) -> list[Any]:
        nonlocal pipelines
        pipelines += 1
        if pipelines == 2:
            store.command("DEL", "korvet:out:0", log.keys.partition("out", 0).producers)
        return send(store, calls)

    monkeypatch.setattr(SyncStore, "_send_many", send_many)
    columns = {"value": [b"%d" % n for n in range(30_000)]}
    with pytest.raises(DataLoss, match="out-0: Redis lost"):
        write(options(log), columns)
    assert write(options(log), columns).records == 30_000
    assert sorted(values(log)) == sorted(columns["value"])


def test_one_write_id_may_write_to_several_topics_each_once(log: Log) -> None:
    for name in ("one", "two"):
        log.create(name, 1)
    jobs = [("one", "w"), ("two", "w"), ("two", "w-two"), ("one", "topic/w")]
    for _ in range(2):
        for name, write_id in jobs:
            asked = {"redis": log.url, "topic": name, "writeId": write_id}
            given = parse_write(asked, streaming=False)
            writer = BatchWriter(given, spark_schema({"value": "string"}))
            batch = pa.record_batch({"value": [name.encode()]})
            writer.commit([sent(writer).write(iter([batch]))])
    assert (values(log, "one"), values(log, "two")) == ([b"one"] * 2, [b"two"] * 2)


def test_a_timestamp_that_a_broker_would_reject_is_rejected(log: Log) -> None:
    log.create("out", 1)
    log.create("stamped", 1, message_timestamp_type="LogAppendTime")
    for moment in (-1_000_000, 32_503_680_000_000_000):
        columns = {"value": [b"a"], "timestamp": pa.array([moment], pa.timestamp("us", "UTC"))}
        with pytest.raises(InvalidDataFrame, match=f"does not accept timestamp {moment // 1000} "):
            write(options(log, includeTimestamp="true"), columns)
        write(options(log, topic="stamped", includeTimestamp="true"), columns, writer=str(moment))
    assert values(log) == [] and len(values(log, "stamped")) == 2
    untimed = pa.array([-1000, None], pa.timestamp("us", "UTC"))
    columns = {"value": [b"no time", b"now"], "timestamp": untimed}
    write(options(log, includeTimestamp="true"), columns, writer="untimed")
    assert values(log) == [b"no time", b"now"]


def test_bytes_mode_keeps_the_largest_message_too(log: Log) -> None:
    log.create("out", 1, "batch", "bytes", max_message_bytes="2000")
    with pytest.raises(InvalidDataFrame, match="too large"):
        write(options(log, compression="none"), {"value": [b"x" * 3000]})


def test_a_topic_that_wants_no_compression_gets_none(log: Log) -> None:
    log.create("out", 1, "batch", compression_type="uncompressed")
    write(options(log), {"value": [b"x" * 3000]})
    [(_, fields)] = log.store.command("XRANGE", "korvet:out:0", "-", "+")
    assert b"x" * 3000 in fields[fields.index(b"batch") + 1]


@layouts
def test_changed_rows_of_a_repeated_task_are_rejected(log: Log, form: str, mode: str) -> None:
    log.create("out", 1, form, mode)
    columns = frame(40)
    write(options(log), columns)
    other = {name: list(reversed(column)) for name, column in columns.items()}
    fewer = {name: column[:30] for name, column in columns.items()}
    for changed in (other, fewer):
        with pytest.raises(NotRepeatable, match="out-0: an earlier attempt"):
            write(options(log), changed)
    assert values(log) == columns["value"]


def test_rows_without_a_key_go_round_robin_in_the_same_runs_each_time(log: Log) -> None:
    log.create("out", 3)
    columns = {"value": [b"%d" % n for n in range(2000)]}
    for _ in range(2):
        write(options(log), columns, task=1, size=333)
    found = read(log.url, subscribe="out")
    assert len(found) == 2000
    counts = [sum(row["partition"] == p for row in found) for p in range(3)]
    assert counts == [500, 1000, 500] or sorted(counts) == [500, 500, 1000]


def test_small_batches_without_keys_do_not_all_go_to_one_partition(log: Log) -> None:
    log.create("out", 3)
    for epoch in range(6):
        write(options(log), {"value": [b"%d" % epoch] * 10}, writer="query", epoch=epoch)
    for job in range(40):
        write(options(log), {"value": [b"job"]}, writer=f"job-{job}")
    found = read(log.url, subscribe="out")
    of_jobs = [row["partition"] for row in found if row["value"] == b"job"]
    of_epochs = [row["partition"] for row in found if row["value"] != b"job"]
    assert [of_epochs.count(each) for each in range(3)] == [20, 20, 20]
    assert min(of_jobs.count(each) for each in range(3)) >= 5


def test_each_row_can_name_its_topic(log: Log) -> None:
    for name in ("one", "two"):
        log.create(name, 2)
    given = parse_write({"redis": log.url}, streaming=False)
    write(given, {"topic": ["one", "two", "one"], "value": [b"a", b"b", b"c"]})
    assert sorted(values(log, "one")) == [b"a", b"c"] and values(log, "two") == [b"b"]
    with pytest.raises(InvalidDataFrame, match="no topic"):
        write(given, {"topic": ["one", None], "value": [b"a", b"b"]}, writer="x")
    with pytest.raises(UnknownTopic, match="'three'"):
        write(given, {"topic": ["three"], "value": [b"a"]}, writer="y")


def test_a_partition_that_does_not_exist_is_rejected(log: Log) -> None:
    log.create("out", 2)
    columns = {"value": [b"a"], "partition": pa.array([2], pa.int32())}
    with pytest.raises(InvalidDataFrame, match="has 2 partitions; a row asks for partition 2"):
        write(options(log), columns)
    assert values(log) == []


@pytest.mark.parametrize("form", ["record", "batch"])
def test_records_that_a_broker_rejects_are_rejected(log: Log, form: str) -> None:
    log.create("out", 1, form, **{"max.message.bytes": "2000"})
    written = write(options(log), {"value": [bytes([n]) * 900 for n in range(9)]})
    assert written.records == 9
    with pytest.raises(InvalidDataFrame, match="bytes is too large for topic 'out'"):
        write(options(log), {"value": [random.Random(1).randbytes(3000)]}, task=1)
    log.create("kept", 1, form, **{"cleanup.policy": "compact"})
    given = options(log, topic="kept")
    with pytest.raises(InvalidDataFrame, match="every record needs a key"):
        write(given, {"key": [b"k", None], "value": [b"a", b"b"]}, task=2)
    nameless = pa.array([[{"key": None, "value": b"x"}]], HEADERS)
    with pytest.raises(InvalidDataFrame, match="a header or its key is null"):
        write(given, {"key": [b"k"], "value": [b"a"], "headers": nameless}, task=3)
    assert (len(values(log)), values(log, "kept")) == (9, [])


def test_timestamps_are_kept_by_option(log: Log) -> None:
    log.create("out", 1, "batch")
    moments = pa.array([1_000_000, None], pa.timestamp("us", "UTC"))
    columns = {"value": [b"a", b"b"], "timestamp": moments}
    write(options(log, includeTimestamp="true"), columns)
    first, second = (row["timestamp"].timestamp() for row in read(log.url, subscribe="out"))
    assert first == 1.0 and second > 1_600_000_000


SCHEMAS: Sequence[tuple[dict[str, Any], str]] = [
    ({"key": "string"}, "'value' is needed"),
    ({"value": "long"}, "'value' must be string or binary, not bigint"),
    ({"value": "string", "key": "integer"}, "'key' must be string or binary"),
    ({"value": "string", "partition": "long"}, "'partition' must be int"),
    ({"value": "string", "topic": "binary"}, "'topic' must be string"),
    ({"value": "string", "headers": "string"}, "'headers' must be array"),
    ({"value": "string", "Value": "string"}, "2 columns 'value'; one is expected"),
]


@pytest.mark.parametrize(("types", "words"), SCHEMAS)
@pytest.mark.parametrize("streaming", [False, True])
def test_a_dataframe_that_cannot_be_written_is_rejected_before_any_task(
    log: Log, types: dict[str, Any], words: str, streaming: bool
) -> None:
    log.create("out", 1)
    schema = spark_schema(types)
    made = source(log.url, **({} if "topic" in types else {"topic": "out"}))
    with pytest.raises(InvalidDataFrame, match=words):
        (made.streamWriter if streaming else made.writer)(schema, False)


def test_option_topic_overrides_column_topic(log: Log) -> None:
    log.create("out", 1)
    source(log.url, topic="out").writer(spark_schema({"value": "string", "topic": "long"}), False)
    write(options(log), {"value": [b"a"], "topic": [7]})
    assert values(log) == [b"a"]


def test_a_topic_that_does_not_exist_is_rejected_before_any_task(log: Log) -> None:
    schema = spark_schema({"value": "string"})
    with pytest.raises(UnknownTopic, match="no topic 'out'"):
        source(log.url, topic="out").writer(schema, False)
    with pytest.raises(InvalidDataFrame, match="No topic"):
        source(log.url).writer(schema, False)


def test_a_job_with_a_write_id_is_done_once_however_often_it_runs(log: Log) -> None:
    log.create("out", 1)
    schema = spark_schema({"value": "string"})
    for _ in range(3):
        writer = sent(
            source(log.url, topic="out", writeId="daily 2026-11-21").writer(schema, False)
        )
        writer.commit([sent(writer).write(batches({"value": ["a", "b"]}))])
    for _ in range(2):
        writer = sent(source(log.url, topic="out").writer(schema, False))
        writer.commit([sent(writer).write(batches({"value": ["c"]}))])
    assert values(log) == [b"a", b"b", b"c", b"c"]


def spark_schema(types: dict[str, Any]) -> Any:
    import json

    fields = [
        {"name": name, "type": type_, "nullable": True, "metadata": {}}
        for name, type_ in types.items()
    ]
    return _parse_datatype_json_string(json.dumps({"type": "struct", "fields": fields}))


def test_the_writer_that_spark_makes_for_each_batch_of_a_stream_waits_for_redis(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch job reports a missing Redis sooner."""
    log.create("out", 1)
    waits = []
    topic = MetadataClient.topic

    def looked(metadata: MetadataClient, name: str) -> Any:
        waits.append(metadata.store.patience_s)
        return topic(metadata, name)

    monkeypatch.setattr(MetadataClient, "topic", looked)
    schema = StructType().add("value", BinaryType())
    for kind in (StreamWriter, BatchWriter):
        kind(options(log), schema)
    assert waits == [RECONNECT_TIMEOUT_S, FIRST_CONNECT_TIMEOUT_S]
