"""Check a Fetch that waits: for which appends, how long, and its reads while it waits."""

import asyncio
from typing import Any

import pytest

from korvet.base.errors import ErrorCode as E
from korvet.fetch import delayed_operation
from korvet.fetch.delayed import DelayedFetch
from korvet.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.support.connected_broker import Broker
from tests.support.exchanges import GOOD, fetch, note_sent, packed, produce, rows, rows_in, shapes


async def test_a_fetch_waits_for_the_next_record(broker: Broker) -> None:
    await broker.create("t", offset_mode="dense")
    waiting = asyncio.create_task(fetch(broker, 0, wait=600_000, least=1))
    await asyncio.sleep(0)
    await produce(broker, GOOD)
    async with asyncio.timeout(60):
        assert len(rows_in((await waiting).records)) == 2


@pytest.mark.parametrize("form", ["record", "batch"])
@pytest.mark.parametrize("version", [2, 4, 18])
async def test_a_fetch_does_not_wait_where_more_is_there_than_it_takes(
    broker: Broker, form: str, version: int
) -> None:
    await broker.create("t", storage_format=form, offset_mode="dense")
    for _ in range(3):
        await produce(broker, packed(rows(*[bytes(100)] * 10), 13))
    # Two batches do not fit, and one is below the requested min bytes.
    asked = fetch(broker, 0, version=version, wait=60_000, size=2000, least=2001)
    assert 1000 < len((await asyncio.wait_for(asked, 50)).records) <= 2000


async def test_a_fetch_waits_no_longer_than_it_says(broker: Broker) -> None:
    await broker.create("t")
    async with asyncio.timeout(60):
        assert not (await fetch(broker, 0, wait=20, least=1)).records


async def test_a_fetch_that_waits_reads_again_only_partitions_with_a_notification(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create("t", 5, storage_format="batch")
    topic = await broker.services.topics.get("t")
    assert topic is not None
    asked: list[str] = []
    looked = asyncio.Event()
    submit = broker.services.store.submit_command

    def counted(*command: Any) -> Any:
        if command[0] == "HMGET":
            asked.append(command[1])
        if len(asked) == 5:
            looked.set()
        return submit(*command)

    monkeypatch.setattr(broker.services.store, "submit_command", counted)
    places = [
        FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=1 << 20) for n in range(5)
    ]
    row = FetchTopic(topic="t", topic_id=topic.uuid, partitions=places)

    def request(wait: int) -> FetchRequest:
        return FetchRequest(max_wait_ms=wait, min_bytes=1, max_bytes=1 << 20, topics=[row])

    await broker.ask(request(20))  # its channels are subscribed from here on
    asked.clear()
    looked.clear()
    waiting = asyncio.ensure_future(broker.ask(request(20_000)))
    await looked.wait()
    assert (await produce(broker, GOOD, number=3)).error_code == E.NONE
    answer = await waiting
    assert len(asked) == 6 and asked[5] == broker.services.keys.partition("t", 3).log
    found = {place.partition_index: place.records for place in answer.responses[0].partitions}
    assert [number for number, data in found.items() if data] == [3] and len(found) == 5


@shapes
@pytest.mark.parametrize("before", [0, 40], ids=["little before", "much before"])
async def test_a_fetch_that_waits_for_many_bytes_reads_them_once_they_are_there(
    broker: Broker, form: str, mode: str, before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create("t", storage_format=form, offset_mode=mode)
    values = [b"%d" % n * 900 for n in range(before + 60)]
    first = (await produce(broker, packed(rows(b"first"), 13))).base_offset
    for value in values[:before]:
        await produce(broker, packed(rows(value), 13))
    await fetch(broker, first)
    least = sum(map(len, values[: before + 40]))
    sent = note_sent(broker, monkeypatch)
    monkeypatch.setattr(delayed_operation, "RECHECK_S", 60)
    waiting = asyncio.create_task(fetch(broker, first, wait=60_000, least=least, size=1 << 20))
    for value in values[before:]:
        await produce(broker, packed(rows(value), 13))
    answer = await asyncio.wait_for(waiting, 60)
    assert len(answer.records) >= least
    found = [row[3] for row in rows_in(answer.records)]
    assert found == [b"first", *values][: len(found)]
    assert sum(command[0] == "XRANGE" for command in sent) <= 8


async def test_a_fetch_that_waits_for_many_bytes_reads_per_append_only_its_offset(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    many, size = 100, 500
    await broker.create("t", many, storage_format="batch", offset_mode="dense")
    topic = await broker.services.topics.get("t")
    assert topic is not None
    places = [
        FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=1 << 20)
        for n in range(many)
    ]
    row = FetchTopic(topic="t", topic_id=topic.uuid, partitions=places)
    request = FetchRequest(
        max_wait_ms=60_000, min_bytes=2 * many * size, max_bytes=1 << 20, topics=[row]
    )
    sent = note_sent(broker, monkeypatch)
    waiting = asyncio.create_task(broker.ask(request))
    for at in range(3 * many):
        await produce(broker, packed(rows(bytes(size)), 13), number=at % many)
    answer = await asyncio.wait_for(waiting, 60)
    found = answer.responses[0].partitions
    assert sum(len(place.records or b"") for place in found) >= 2 * many * size
    asked = sum(command[0] == "HMGET" for command in sent)
    assert asked <= many + 3 * many + many  # at first, at each append, and in the end


@shapes
@pytest.mark.parametrize("most", [200_000, 1 << 20], ids=["of a partition", "of all"])
async def test_a_fetch_that_waits_for_more_than_fits_returns_what_fits(
    broker: Broker, form: str, mode: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create("t", storage_format=form, offset_mode=mode)
    topic = await broker.services.topics.get("t")
    assert topic is not None
    first = (await produce(broker, packed(rows(b"first"), 13))).base_offset
    monkeypatch.setattr(delayed_operation, "RECHECK_S", 60)
    place = FetchPartition(partition=0, fetch_offset=first, partition_max_bytes=most)
    row = FetchTopic(topic="t", topic_id=topic.uuid, partitions=[place])
    request = FetchRequest(max_wait_ms=60_000, min_bytes=1 << 20, max_bytes=200_000, topics=[row])
    waiting = asyncio.create_task(broker.ask(request))
    for _ in range(8):
        await produce(broker, packed(rows(bytes(50_000)), 13))
    answer = await asyncio.wait_for(waiting, 50)
    found = rows_in(answer.responses[0].partitions[0].records)
    assert [len(row[3] or b"") for row in found] == [5, 50_000, 50_000, 50_000]


@pytest.mark.parametrize("size", [100, 1000])
async def test_a_reader_at_the_log_end_reads_records_and_state_together(
    broker: Broker, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create("t", storage_format="record", offset_mode="dense")
    data, clock = packed(rows(*[bytes(size)] * 50), 13), 0.0
    monkeypatch.setattr("korvet.log.size_estimates.monotonic", lambda: clock)
    for _ in range(10):
        at = (await produce(broker, data)).base_offset + 50
    await fetch(broker, at)
    sent = note_sent(broker, monkeypatch)
    for _ in range(3):
        await produce(broker, data)
        sent.clear()
        found = rows_in((await fetch(broker, at)).records)
        assert [row[0] for row in found] == list(range(at, at + 50))
        assert [command[0] for command in sent] == ["HMGET", "XRANGE"]
        at += 50


@shapes
async def test_a_fetch_that_waits_below_a_trimmed_start_ends_at_the_next_append(
    broker: Broker, form: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create("t", storage_format=form, offset_mode=mode)
    topic = await broker.services.topics.get("t")
    assert topic is not None
    monkeypatch.setattr(delayed_operation, "RECHECK_S", 60)
    first = (await produce(broker, packed(rows(bytes(80_000)), 13))).base_offset
    waits = asyncio.Event()
    monkeypatch.setattr(DelayedFetch, "_before_wait", lambda fetch: waits.set())
    waiting = asyncio.create_task(fetch(broker, first, wait=60_000, least=100_000))
    await waits.wait()
    trimmed = broker.services.keys.partition("t", 0, topic.id).delete_records(before=-1)
    assert (await broker.services.store.run(trimmed)).error == E.NONE
    await produce(broker, packed(rows(b"after"), 13))
    assert (await asyncio.wait_for(waiting, 50)).error_code == E.OFFSET_OUT_OF_RANGE


@shapes
async def test_a_fetch_that_times_out_returns_records_of_the_wait(
    broker: Broker, form: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create("t", storage_format=form, offset_mode=mode)
    first = (await produce(broker, packed(rows(bytes(50_000)), 13))).base_offset
    kept: list[int] = []
    waits = asyncio.Event()

    before_wait = DelayedFetch._before_wait

    def dropped(fetch: DelayedFetch) -> None:
        waits.set()
        before_wait(fetch)
        kept.append(
            sum(len(one.response.records or ()) for one in fetch.partitions if one.response)
        )

    monkeypatch.setattr(DelayedFetch, "_before_wait", dropped)
    monkeypatch.setattr(delayed_operation, "RECHECK_S", 60)
    clock = 0.0
    monkeypatch.setattr(delayed_operation, "monotonic", lambda: clock)
    for several in (1, 2):
        waits.clear()
        waiting = asyncio.create_task(fetch(broker, first, wait=50_000, least=1 << 20))
        await waits.wait()
        await produce(broker, packed(rows(bytes(50_000)), 13))
        clock += 50
        broker.services.notifier.notify(broker.services.keys.partition("t", 0).channel)
        assert len(rows_in((await waiting).records)) == several + 1
    assert kept[-1] == 0, "large batches are not cached while it waits"
