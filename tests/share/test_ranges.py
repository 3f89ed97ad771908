"""Check the ranges that share.acquire and share.acknowledge get."""

import pytest

from korvet.base.errors import ErrorCode
from korvet.log.entry import Entry
from korvet.log.read_result import ReadResult
from korvet.share.acquire_values import entries_with, ranges_of
from korvet.share.service import typed_ranges
from korvet.topics.table import Topic
from korvet.wire import control_records
from korvet.wire.messages.share_acknowledge import AcknowledgementBatch
from tests.support.connected_broker import Broker


def plain(offset: int) -> Entry:
    return Entry(offset, offset, [b"value", b"v"], 0, 6)


def within(offset: int, producer: int) -> Entry:
    fields = [b"transaction", b"%d" % producer, b"value", b"v"]
    return Entry(offset, offset, fields, 0, 20)


def marker(offset: int, producer: int, committed: bool) -> Entry:
    fields = control_records.fields_of(0, producer, 0, committed)
    return Entry(offset, offset, fields, 0, 20)


async def topic_of(broker: Broker, form: str) -> Topic:
    await broker.create("t", offset_mode="dense", storage_format=form)
    topic = await broker.services.topics.get("t")
    assert topic is not None
    return topic


async def test_adjacent_records_are_one_range(broker: Broker) -> None:
    topic = await topic_of(broker, "record")
    entries = [plain(offset) for offset in (3, 4, 5, 9, 10)]
    result = ReadResult(ErrorCode.NONE, entries=entries)
    assert ranges_of(topic, result, 4, 1) == [(4, 5), (9, 10)]


async def test_batches_are_one_range_up_to_the_requested_records(broker: Broker) -> None:
    topic = await topic_of(broker, "batch")
    entries = [Entry(at, at + 9, [], 0, 10) for at in (0, 10, 20, 40)]
    result = ReadResult(ErrorCode.NONE, entries=entries)
    assert ranges_of(topic, result, 5, 15) == [(5, 19), (20, 29), (40, 49)]
    assert ranges_of(topic, result, 5, 1) == [(5, 9), (10, 19), (20, 29), (40, 49)]


async def test_markers_and_records_of_aborted_transactions_are_in_no_range(broker: Broker) -> None:
    topic = await topic_of(broker, "record")
    entries = [
        within(0, 1),
        within(1, 2),
        plain(2),
        marker(3, 1, False),
        within(4, 1),
        marker(5, 2, True),
        marker(6, 1, True),
        within(7, 2),
        marker(8, 2, False),
        plain(9),
    ]
    result = ReadResult(ErrorCode.NONE, entries=entries, stable=-1, aborted=[(1, 0), (2, 7)])
    assert ranges_of(topic, result, 0, 1) == [(1, 2), (4, 4), (9, 9)]
    result.aborted = []
    assert ranges_of(topic, result, 0, 1) == [(0, 2), (4, 4), (7, 7), (9, 9)]


def test_only_entries_with_an_acquired_record_are_sent() -> None:
    entries = [Entry(at, at + 9, [], 0, 10) for at in (0, 10, 20, 30)]
    found = entries_with(entries, [(3, 4, 1), (9, 10, 1), (35, 35, 2)])
    assert [entry.first for entry in found] == [0, 10, 30]
    assert entries_with(entries, []) == []


@pytest.mark.parametrize(
    ("batches", "ranges"),
    [
        ([(0, 9, [1])], [(0, 9, 1)]),
        ([(0, 4, [1, 1, 2, 0, 0])], [(0, 1, 1), (2, 2, 2), (3, 4, 0)]),
        ([(2, 3, [1, 2]), (7, 7, [3])], [(2, 2, 1), (3, 3, 2), (7, 7, 3)]),
        ([(7, 7, [3]), (2, 3, [1, 2])], None),
        ([(0, 1, [1, 4])], None),
        ([(0, 9, [])], None),
        ([(5, 4, [1])], None),
    ],
)
def test_types_of_adjacent_offsets_are_joined(
    batches: list[tuple[int, int, list[int]]], ranges: list[tuple[int, int, int]] | None
) -> None:
    given: list[AcknowledgementBatch] = [
        AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
        for first, last, types in batches
    ]
    assert typed_ranges(given, renews=False) == ranges
