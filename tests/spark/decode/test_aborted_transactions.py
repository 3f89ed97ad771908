"""Check that reads leave out markers, and committed reads aborted records."""

import json
import random
from typing import Any

import numpy as np
import pytest

from korvet.spark.decode import range_scan
from korvet.spark.decode.layout_decoder import AbortedIndex
from korvet.spark.partitions import OffsetRange, partitions_of
from korvet.topics.table import Topic
from korvet.wire import batch_builder, control_records, record_entries
from korvet.wire.records import Record
from korvet.wire.segments import AbortedRow
from tests.spark.data_source_driver import read
from tests.spark.test_stream_reader import Query
from tests.spark.topic_log import LAYOUTS, Log, plain

layouts = pytest.mark.parametrize(("form", "mode"), LAYOUTS)


class Transaction:
    """A producer's transactions in one partition, as a broker stores them."""

    def __init__(self, log: Log, topic: Topic, producer_id: int) -> None:
        self._log, self._topic, self._id = log, topic, producer_id
        self._number, self._sequence = 1, 0

    def append(self, found: list[Record]) -> list[int]:
        """Append records to the open transaction and return their offsets."""
        newest = max(record[1] for record in found)
        if self._topic.is_batch:
            producer = (self._id, 0, self._sequence)
            data = bytes(batch_builder.build(found, transactional=True, producer=producer))
            fields = (b"batch", data, b"count", len(found), b"max.timestamp", newest)
        else:
            fields = tuple(record_entries.fields_of(found, producer_id=self._id))
        reply = self._log.store.run(
            self._log.keys.partition(self._topic.name, 0, self._topic.id).append(
                count=len(found),
                size=100 * len(found),
                max_timestamp=newest,
                producer_id=self._id,
                producer_epoch=0,
                base_sequence=self._sequence,
                transaction=self._number,
                fields=fields,
            )
        )
        assert reply.error == 0
        self._sequence += len(found)
        return list(range(reply.base, reply.base + len(found)))

    def end(self, *, committed: bool) -> None:
        """Append the marker that ends the transaction."""
        if self._topic.is_batch:
            batch = bytes(control_records.control_batch(0, 7, self._id, 0, committed))
            fields = [b"batch", batch, b"count", b"1", b"max.timestamp", b"7"]
        else:
            fields = control_records.fields_of(7, self._id, 0, committed)
        reply = self._log.store.run(
            self._log.keys.partition(self._topic.name, 0, self._topic.id).write_txn_marker(
                producer_id=self._id,
                producer_epoch=0,
                transaction=self._number,
                committed=int(committed),
                size=50,
                fields=fields,
            )
        )
        assert reply.error == 0 and reply.offset >= 0
        self._number += 1


@layouts
def test_a_committed_read_has_committed_records_and_no_markers(
    log: Log, form: str, mode: str
) -> None:
    topic = log.create("t", 1, form, mode)
    first, second = Transaction(log, topic, 11), Transaction(log, topic, 12)
    good, bad = list[int](), list[int]()
    good += [record[0] for record in log.append(topic, 0, plain(3))]
    good += first.append(plain(4))
    bad += second.append(plain(5))
    good += [record[0] for record in log.append(topic, 0, plain(2))]
    good += first.append(plain(1))
    second.end(committed=False)
    first.end(committed=True)
    good += second.append(plain(2))
    second.end(committed=True)
    good += [record[0] for record in log.append(topic, 0, plain(1))]
    undecided = first.append(plain(3))
    late = [record[0] for record in log.append(topic, 0, plain(2))]

    def offsets(level: str) -> list[int]:
        rows = read(log.url, subscribe="t", columns="offset", isolation=level)
        return [row["offset"] for row in rows]

    by_default = [row["offset"] for row in read(log.url, subscribe="t", columns="offset")]
    assert by_default == offsets("read_committed") == sorted(good)
    assert offsets("read_uncommitted") == sorted(good + bad + undecided + late)
    first.end(committed=False)
    assert offsets("read_committed") == sorted(good + late)


@layouts
def test_an_end_offset_after_an_open_transaction_reads_no_open_records(
    log: Log, form: str, mode: str
) -> None:
    topic = log.create("t", 1, form, mode)
    one = Transaction(log, topic, 11)
    good = [record[0] for record in log.append(topic, 0, plain(3))]
    undecided = one.append(plain(4))
    late = [record[0] for record in log.append(topic, 0, plain(2))]

    def offsets(**options: object) -> list[int]:
        end = json.dumps({"t": {"0": late[-1]}})
        rows = read(log.url, subscribe="t", columns="offset", endingOffsets=end, **options)
        return [row["offset"] for row in rows]

    assert offsets() == good
    assert offsets(startingOffsets=json.dumps({"t": {"0": undecided[1]}})) == []
    assert offsets(isolation="read_uncommitted") == good + undecided + late[:1]
    one.end(committed=True)
    assert offsets() == good + undecided + late[:1]


@layouts
def test_a_committed_stream_waits_for_the_end_of_a_transaction(
    log: Log, form: str, mode: str
) -> None:
    topic = log.create("t", 1, form, mode)
    one = Transaction(log, topic, 11)
    query = Query(log.url, subscribe="t", startingOffsets="earliest")
    log.append(topic, 0, plain(2))
    one.append(plain(3))
    log.append(topic, 0, plain(4))
    assert query.trigger() == 2 and query.trigger() == 0
    one.end(committed=True)
    assert query.trigger() == 7
    one.append(plain(3))
    one.end(committed=False)
    log.append(topic, 0, plain(1))
    query.restart()
    assert query.trigger() == 1


@layouts
def test_an_open_transaction_is_not_a_lost_log_end(log: Log, form: str, mode: str) -> None:
    topic = log.create("s", 1, form, mode)
    transaction = Transaction(log, topic, 11)
    transaction.append(plain(3))
    log.append(topic, 0, plain(2))
    eager, with_reconnect, latest = (
        Query(log.url, subscribe="s", startingOffsets=start, isolation=isolation)
        for start, isolation in (
            ("earliest", "read_uncommitted"),
            ("earliest", "read_committed"),
            ("latest", "read_committed"),
        )
    )
    assert [query.trigger() for query in (eager, with_reconnect, latest)] == [5, 0, 0]
    later = Query(log.url, subscribe="s", isolation="read_committed")
    later.checkpoint = list(eager.checkpoint)
    later.restart()
    assert later.trigger() == 0
    named = {"startingOffsets": json.dumps(eager.checkpoint[-1]), "endingOffsets": '{"s":{"0":-1}}'}
    assert read(log.url, subscribe="s", **named) == []
    transaction.end(committed=True)
    assert [query.trigger() for query in (with_reconnect, later)] == [5, 0]
    assert latest.trigger() in (0, 5)


def test_aborted_records_are_found_by_producer_and_offset() -> None:
    draw = random.Random(5)
    spans: list[AbortedRow] = []
    for producer in (7, 8, 1 << 40):
        edges = sorted(draw.sample(range(1000), 40))
        spans += [
            AbortedRow(producer, a, b, b) for a, b in zip(edges[::2], edges[1::2], strict=True)
        ]
    draw.shuffle(spans)
    undone = AbortedIndex(spans)
    producers = np.array([draw.choice([7, 8, 9, 1 << 40]) for _ in range(3000)])
    offsets = np.array([draw.randrange(1000) for _ in range(3000)])
    expected = [
        any(s.producer_id == p and s.first <= at < s.last for s in spans)
        for p, at in zip(producers.tolist(), offsets.tolist(), strict=True)
    ]
    assert undone.contain_each(producers, offsets).tolist() == expected
    pairs = zip(producers.tolist(), offsets.tolist(), strict=True)
    assert [undone.contains(p, at) for p, at in pairs] == expected
    assert undone and not AbortedIndex([])


def test_a_task_does_not_read_transactions_aborted_after_its_range(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_scan, "INDEX_PAGE", 4)
    topic = log.create("t", 1)
    long, short = Transaction(log, topic, 11), Transaction(log, topic, 12)
    bad = [long.append(plain(1))]
    for _ in range(5):
        bad.append(short.append(plain(1)))
        short.end(committed=False)
    long.end(committed=False)
    for _ in range(60):
        short.append(plain(1))
        short.end(committed=False)
    asked: list[Any] = []
    command = log.store.command
    monkeypatch.setattr(log.store, "command", lambda *each: asked.append(each) or command(*each))
    [part] = partitions_of(topic)
    found = range_scan.aborted_transactions(
        log.store, log.keys, OffsetRange(part, 0, bad[-1][0] + 1)
    )
    assert sorted(each.first for each in found) == sorted(offset for [offset] in bad)
    assert len(asked) < 4


@pytest.mark.parametrize("mode", ["time", "dense"])
def test_markers_do_not_make_a_task_read_a_few_entries_at_a_time(
    log: Log, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    topic = log.create("t", 1, "record", mode)
    one = Transaction(log, topic, 11)
    for _ in range(40):
        last = one.append(plain(50))
        one.end(committed=True)
    asked: list[int] = []
    commands = range_scan.RangeScan._commands

    def counted(self: range_scan.RangeScan, start: int, stop: int | None, most: int) -> Any:
        asked.append(most)
        return commands(self, start, stop, most)

    monkeypatch.setattr(range_scan.RangeScan, "_commands", counted)
    assert len(read(log.url, subscribe="t")) == 2000
    assert min(asked) >= range_scan.TAIL_ENTRIES
    asked.clear()
    log.truncate(topic, 0, last[0])
    assert len(read(log.url, subscribe="t")) == 50
    assert min(asked) >= range_scan.TAIL_ENTRIES
