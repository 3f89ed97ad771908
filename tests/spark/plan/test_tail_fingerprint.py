"""Check streams on a log that lost its end in a failover and reused the offsets."""

import json
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from korvet.log.layouts import bytes as bytes_layout
from korvet.scripts.call import Arg
from korvet.spark.errors import DataLoss
from korvet.store.sync_store import SyncStore
from korvet.topics.table import Topic
from tests.legacy.wire import message
from tests.spark.data_source_driver import read
from tests.spark.decode.test_aborted_transactions import Transaction
from tests.spark.test_stream_reader import Query, through_json
from tests.spark.topic_log import LAYOUTS, Log, begun, forgotten, plain

DENSE = [form for form, mode in LAYOUTS if mode == "dense"]
forms = pytest.mark.parametrize("form", DENSE)
layouts = pytest.mark.parametrize(("form", "mode"), LAYOUTS)


def stream(log: Log, **options: object) -> Query:
    return Query(log.url, subscribe="s", startingOffsets="earliest", **options)


def tails(query: Query) -> dict[str, Any]:
    """Return the checkpoint's fingerprints of topic `s` by partition."""
    found: dict[str, Any] = query.checkpoint[-1].get("/tails", {}).get("s", {})
    return found


@forms
@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("others", [(20,), (12,), (6, 30), (3, 7, 1)])
def test_replaced_records_below_the_checkpoint_end_a_stream(
    log: Log, form: str, others: tuple[int, ...], restarted: bool
) -> None:
    topic = log.create("s", 2, form)
    for number in range(2):
        log.append(topic, number, plain(10))
    query = stream(log)
    with forgotten(log):
        log.append(topic, 1, plain(5))
        log.append(topic, 1, plain(5))
        assert query.trigger() == 30
    for count in others:
        log.append(topic, 1, plain(count, size=30))
    with pytest.raises(DataLoss, match="'s' partition 1: the checkpoint has offsets up to 19"):
        if restarted:
            query.restart()
        query.trigger()


@forms
def test_a_stream_that_allows_data_loss_warns_once_and_continues(
    log: Log, form: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic = log.create("s", 2, form)
    query = stream(log, failOnDataLoss="false")
    with forgotten(log):
        log.append(topic, 0, plain(10))
        log.append(topic, 1, plain(10))
        assert query.trigger() == 20
    log.append(topic, 0, plain(15, size=30))
    with caplog.at_level(logging.WARNING, "korvet.spark"):
        assert query.trigger() == 5
        assert [each for each in caplog.messages if "up to 9" in each]
        caplog.clear()
        log.append(topic, 0, plain(3))
        assert query.trigger() == 3
        query.restart()
    assert not [each for each in caplog.messages if "partition 0" in each]


@forms
def test_a_repeated_batch_is_not_mistaken_for_replaced_records(log: Log, form: str) -> None:
    topic = log.create("s", 1, form, records=10)
    query = stream(log)
    assert query.trigger() == 10
    with forgotten(log):
        log.append(topic, 0, plain(10))
        end = through_json(query.reader.latestOffset())
    log.append(topic, 0, plain(12, size=30))
    query.restart()
    with pytest.raises(DataLoss, match="'s' partition 0: the checkpoint has offsets up to 19"):
        query.reader.partitions(query.checkpoint[-1], end)


def trimmed(log: Log, topic: Topic) -> None:
    log.truncate(topic, 0, 10)


def trimmed_behind_more(log: Log, topic: Topic) -> None:
    log.append(topic, 0, plain(10))
    log.truncate(topic, 0, 10)


def compacted(log: Log, topic: Topic) -> None:
    """Mark the log as compacted: compaction rewrites entries and records that it did."""
    log.append(topic, 0, plain(1))
    log.store.command("HSET", log.keys.partition("s", 0).log, "cleaned", 9)
    log.store.command("XDEL", "korvet:s:0", "9223372036854775807-9")
    fields = ("timestamp", 1, "value", "other")
    log.store.command("XADD", "korvet:s:0", "9223372036854775807-11", *fields)


def taken_out(log: Log, topic: Topic) -> None:
    log.store.command("XDEL", "korvet:s:0", "9223372036854775807-9")


def added(log: Log, topic: Topic) -> None:
    if not topic.is_batch:
        log.store.command("XADD", "korvet:s:0", "*", "value", "native")


def in_transaction(log: Log, topic: Topic) -> None:
    producer = Transaction(log, topic, 7)
    producer.append(plain(3))
    producer.end(committed=False)


def grown(log: Log, topic: Topic) -> None:
    log.append(log.grow(topic, 3), 2, plain(4))


@forms
@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize(
    "happens",
    [trimmed, trimmed_behind_more, compacted, taken_out, added, in_transaction, grown],
)
def test_other_changes_of_a_log_are_not_taken_for_data_loss(
    log: Log, form: str, happens: Callable[[Log, Topic], None], restarted: bool
) -> None:
    topic = log.create("s", 1, form, records=10)
    query = stream(log)
    assert query.trigger() == 10
    happens(log, topic)
    if restarted:
        query.restart()
    query.trigger()
    log.append(topic, 0, plain(2))
    assert query.trigger() == 2


@forms
def test_a_batch_may_end_inside_of_a_stored_one(log: Log, form: str) -> None:
    topic = log.create("s", 1, form)
    query = stream(log, maxOffsetsPerTrigger=4)
    with forgotten(log):
        log.append(topic, 0, plain(10))
        assert [query.trigger(), query.trigger()] == [4, 4]
        query.restart()
        assert tails(query)
    log.append(topic, 0, plain(10, size=30))
    with pytest.raises(DataLoss, match="offsets up to 7"):
        query.trigger()


def test_a_partition_without_new_records_keeps_its_fingerprint_and_is_not_read(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = log.create("s", 2, records=10)
    log.append(topic, 1, plain(10))
    query = stream(log)
    assert query.trigger() == 20
    first = tails(query)
    log.append(topic, 1, plain(1))
    asked: list[Sequence[Arg]] = []
    commands = SyncStore.commands

    def noted(store: SyncStore, some: Iterable[Sequence[Arg]]) -> list[Any]:
        found = list(some)
        asked.extend(found)
        return commands(store, found)

    # The scripts send HGET too: only the commands of this process count.
    monkeypatch.setattr(SyncStore, "commands", noted)
    assert query.trigger() == 1
    assert tails(query)["0"] == first["0"] and tails(query)["1"] != first["1"]
    logs = [log.keys.partition("s", number).log for number in range(2)]
    assert ("HGET", logs[1], "cleaned") in asked
    assert ("HGET", logs[0], "cleaned") not in asked
    asked.clear()
    query.reader.latestOffset()
    assert not [each for each in asked if each[0] in {"HGET", "XRANGE"}]


def test_time_mode_has_no_fingerprints(log: Log) -> None:
    log.create("s", 1, "record", "time", records=10)
    query = stream(log)
    assert query.trigger() == 10
    assert not tails(query)


def test_reused_byte_positions_are_noticed(log: Log) -> None:
    topic = log.create("s", 1, mode="bytes")

    def append(*values: bytes) -> None:
        data = b"".join(map(message, values))
        limit = topic.policy.max_opened_bytes
        call = bytes_layout.append_set(topic, 0, data, limit)
        assert log.store.run(call).error == 0

    append(b"one", b"two")
    query = stream(log)
    with forgotten(log):
        append(b"three")
        assert query.trigger() == 3
    append(b"other", b"and more")
    with pytest.raises(DataLoss, match="'s' partition 0"):
        query.trigger()


@forms
def test_available_now_does_not_wait_for_records_lost_meanwhile(log: Log, form: str) -> None:
    """The run must take what there is; nothing that the stream has read is lost."""
    topic = log.create("s", 1, form, records=10)
    query = stream(log, failOnDataLoss="false")
    assert query.trigger() == 10
    with forgotten(log):
        log.append(topic, 0, plain(30))
        query.reader.prepareForTriggerAvailableNow()
    log.append(topic, 0, plain(5, size=30))
    assert query.trigger() == 5
    log.append(topic, 0, plain(40, size=30))
    query.restart()
    assert query.trigger() == 40
    assert [offset for *_, offset in query.rows] == list(range(55))


@layouts
def test_lost_records_that_a_stream_has_read_end_it_or_are_a_warning(
    log: Log, form: str, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic = log.create("s", 1, form, mode)
    strict, lenient = (stream(log, failOnDataLoss=flag) for flag in ("true", "false"))
    # The first connection of a process may begin an epoch.
    assert strict.trigger() == lenient.trigger() == 0
    ended = log.append(topic, 0, plain(10))[-1][0] + 1
    with forgotten(log):
        position = log.append(topic, 0, plain(5))[-1][0] + 1
        assert strict.trigger() == lenient.trigger() == 15
    begun(log, topic, position)
    log.append(topic, 0, plain(7))
    said = f"up to offset {position}, but Redis has lost data: the records from offset {ended} on"
    for again in (strict.trigger, strict.restart):
        with pytest.raises(DataLoss, match=said):
            again()
    with pytest.raises(DataLoss, match=said):
        read(log.url, subscribe="s", startingOffsets=json.dumps({"s": {"0": position}}))
    with caplog.at_level(logging.WARNING, "korvet.spark"):
        assert lenient.trigger() == 7
        assert any(said in each for each in caplog.messages)
        caplog.clear()
        log.append(topic, 0, plain(3))
        assert lenient.trigger() == 3
        lenient.restart()
    assert not caplog.messages
    assert len(set(lenient.rows)) == 25
    # Those that read it from the beginning have lost nothing.
    assert len(read(log.url, subscribe="s", maxRecordsPerPartition=3)) == 20
    assert stream(log, maxRecordsPerPartition=3).trigger() == 20
    slow = stream(log, maxOffsetsPerTrigger=1)
    while slow.trigger() or slow.checkpoint[-1] != slow.reader.latestOffset():
        pass
    assert len(slow.rows) == 20


@layouts
def test_a_log_whose_records_were_all_lost_is_read_from_its_start(
    log: Log, form: str, mode: str
) -> None:
    """Its first entry is the marker, at an offset between the lost records and the next ones."""
    topic = log.create("s", 1, form, mode)
    with forgotten(log):
        position = log.append(topic, 0, plain(5))[-1][0] + 1
    begun(log, topic, position)
    log.append(topic, 0, plain(7))
    assert len(read(log.url, subscribe="s")) == 7
    query = stream(log)
    assert query.trigger() == 7
    log.append(topic, 0, plain(3))
    query.restart()
    assert query.trigger() == 3


@layouts
def test_records_lost_after_a_batch_was_planned_are_no_end_of_it(
    log: Log, form: str, mode: str
) -> None:
    """Check its tasks, and its repetition."""
    topic = log.create("s", 1, form, mode, records=10)
    query = stream(log, maxRecordsPerPartition=6)
    start = query.reader.initialOffset()
    with forgotten(log):
        position = log.append(topic, 0, plain(5))[-1][0] + 1
        end = through_json(query.reader.latestOffset())
        *_, piece = query.reader.partitions(start, end)
    begun(log, topic, position)
    with pytest.raises(DataLoss, match=f"up to offset {position}, but Redis has lost data"):
        list(query.reader.read(piece))
    with pytest.raises(DataLoss, match=f"up to offset {position}, but Redis has lost data"):
        query.batch(start, end)
