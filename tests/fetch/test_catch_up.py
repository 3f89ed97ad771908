"""Check that large batches far below the log's end are sent from the buffers of Redis's reply."""

import asyncio
from random import Random
from typing import Any

import pytest

from korvet.base.errors import ErrorCode as E
from korvet.wire import compression
from tests.support.connected_broker import Broker
from tests.support.exchanges import fetch, packed, produce, rows, rows_in

SIZE, BATCHES, FETCHED = 40_000, 30, 170_000
modes = pytest.mark.parametrize("mode", ["dense", "time"])


@pytest.fixture(autouse=True)
def no_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log of 1 MB treated like a large one: no part of it counts as its tail."""
    monkeypatch.setattr("korvet.log.read_cache.TAIL_SHARE", 1 << 40)


@pytest.fixture
def ranges(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The replies of the ranges that the broker reads from now on."""
    sent, submit = list[Any](), broker.services.store.submit_range

    def noted(key: str, commands: Any, reply: Any) -> Any:
        sent.append(reply)
        return submit(key, commands, reply)

    monkeypatch.setattr(broker.services.store, "submit_range", noted)
    return sent


async def fill(broker: Broker, codec: int = compression.NONE) -> list[tuple[int, bytes]]:
    """Produce many large batches; return the offset and the value of each record."""
    random, there = Random(29), list[tuple[int, bytes]]()
    for _ in range(BATCHES):
        values = [random.randbytes(SIZE // 4) for _ in range(4)]
        answer = await produce(broker, packed(rows(*values), 13, codec))
        assert answer.error_code == E.NONE
        there += [(answer.base_offset + n, value) for n, value in enumerate(values)]
    return there


def bytes_of(data: Any) -> bytes:
    """Return the bytes of a fetch response's records."""
    return b"".join(bytes(part) for part in data) if isinstance(data, list) else bytes(data)


async def read_all(broker: Broker, first: int, **how: Any) -> list[tuple[int, bytes]]:
    """Read all records from an offset to the end, one fetch after another."""
    found: list[tuple[int, bytes]] = []
    at = first
    while True:
        answer = await fetch(broker, at, size=FETCHED, **how)
        assert answer.error_code == E.NONE and answer.log_start_offset == 0
        if not answer.records:
            return found
        assert len(bytes_of(answer.records)) <= FETCHED
        got = [(row[0], bytes(row[3] or b"")) for row in rows_in(answer.records)]
        found += [row for row in got if row[0] >= at]
        at = found[-1][0] + 1
        assert answer.high_watermark >= at


@modes
@pytest.mark.parametrize("codec", [compression.NONE, compression.LZ4])
@pytest.mark.parametrize("committed", [False, True])
async def test_a_reader_from_the_start_gets_every_record(
    broker: Broker, ranges: list[Any], mode: str, codec: int, committed: bool
) -> None:
    await broker.create("t", storage_format="batch", offset_mode=mode)
    there = await fill(broker, codec)
    assert await read_all(broker, 0, committed=committed) == there
    assert len(ranges) >= BATCHES * SIZE // FETCHED - 3


@modes
async def test_a_fetch_inside_a_batch_gets_the_whole_batch(
    broker: Broker, ranges: list[Any], mode: str
) -> None:
    await broker.create("t", storage_format="batch", offset_mode=mode)
    there = await fill(broker)
    await fetch(broker, 0, size=FETCHED)
    assert not ranges
    for at in (9, 10, 11):
        answer = await fetch(broker, there[at][0], size=FETCHED)
        assert rows_in(answer.records)[0][0] == there[8][0]
    assert len(ranges) == 3


async def test_what_is_read_for_the_second_time_is_cached(
    broker: Broker, ranges: list[Any]
) -> None:
    await broker.create("t", storage_format="batch", offset_mode="dense")
    there = await fill(broker)
    cache = broker.services.log_reader.cache
    assert await read_all(broker, 0) == there
    assert cache.held_bytes < 10 * SIZE
    assert await read_all(broker, 0) == there
    assert cache.held_bytes > (BATCHES - 10) * SIZE
    read, hits = len(ranges), cache.hits
    assert await read_all(broker, 0) == there
    assert len(ranges) == read and cache.hits > hits + BATCHES * SIZE // FETCHED - 2


async def test_the_end_of_a_log_is_cached_when_it_is_read_first(
    broker: Broker, ranges: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("korvet.log.read_cache.TAIL_SHARE", 16)
    await broker.create("t", storage_format="batch", offset_mode="dense")
    there = await fill(broker)
    cache = broker.services.log_reader.cache
    assert await read_all(broker, 0) == there
    assert ranges and cache.held_bytes > BATCHES * SIZE
    read = len(ranges)
    assert await read_all(broker, 0) == there
    assert len(ranges) == read


@modes
async def test_what_other_clients_added_is_left_out(
    broker: Broker, ranges: list[Any], mode: str
) -> None:
    await broker.create("t", storage_format="batch", offset_mode=mode)
    stream = broker.services.keys.partition("t", 0).stream
    there = await fill(broker)
    for fields in (("value", "x" * 50), ("batch", "x" * 60, "count", "5")):
        await broker.services.store.command("XADD", stream, "*", *fields)
    there += await fill(broker)
    found = await read_all(broker, 0)
    assert [row for row in found if row in there] == there
    assert len(ranges) > BATCHES * SIZE // FETCHED


async def test_log_append_time_is_not_read_in_ranges(broker: Broker, ranges: list[Any]) -> None:
    await broker.create("t", storage_format="batch", message_timestamp_type="LogAppendTime")
    assert await read_all(broker, 0) == [] == ranges
    there = await fill(broker)
    assert await read_all(broker, 0) == there and not ranges


async def test_a_topic_that_was_made_again_is_an_error(broker: Broker, ranges: list[Any]) -> None:
    await broker.create("t", storage_format="batch", offset_mode="dense")
    there = await fill(broker)
    await fetch(broker, 0, size=FETCHED)
    assert (await fetch(broker, there[60][0], size=FETCHED)).records  # its state is used again
    log = broker.services.keys.partition("t", 0).log
    for value, error in (("another", E.UNKNOWN_TOPIC_ID), (None, E.UNKNOWN_TOPIC_OR_PARTITION)):
        change = ("HSET", log, "topic_id", value) if value else ("HDEL", log, "topic_id")
        await broker.services.store.command(*change)
        answer = await fetch(broker, there[20][0], size=FETCHED)
        assert answer.error_code == error and not answer.records
    assert len(ranges) == 3


async def test_below_a_new_log_start_is_out_of_range(broker: Broker, ranges: list[Any]) -> None:
    await broker.create("t", storage_format="batch", offset_mode="dense")
    there = await fill(broker)
    await fetch(broker, 0, size=FETCHED)
    assert (await fetch(broker, there[60][0], size=FETCHED)).records  # its state is used again
    await broker.services.store.command(
        "HSET", broker.services.keys.partition("t", 0).log, "start", 50
    )
    answer = await fetch(broker, 40, size=FETCHED)
    assert answer.error_code == E.OFFSET_OUT_OF_RANGE and len(ranges) == 2


async def test_an_error_of_redis_is_not_taken_for_records(
    broker: Broker, ranges: list[Any]
) -> None:
    await broker.create("t", storage_format="batch", offset_mode="dense")
    there = await fill(broker)
    await fetch(broker, 0, size=FETCHED)
    stream, store = broker.services.keys.partition("t", 0).stream, broker.services.store
    dumped = await store.command("DUMP", stream)
    await store.command("SET", stream, "x")
    answer = await fetch(broker, there[20][0], size=FETCHED)
    assert answer.error_code == E.KAFKA_STORAGE_ERROR and not answer.records
    await store.command("RESTORE", stream, 0, dumped, "REPLACE")
    assert await read_all(broker, there[20][0]) == there[20:]
    assert len(ranges) > 2


async def test_if_the_connection_for_ranges_breaks_records_are_read_on_another(
    broker: Broker, ranges: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create("t", storage_format="batch", offset_mode="dense")
    there = await fill(broker)
    await fetch(broker, 0, size=FETCHED)
    store = broker.services.store
    submit, closing = store.submit_range, list[Any]()

    def broken(key: str, commands: Any, reply: Any) -> Any:
        future = submit(key, commands, reply)
        closing.append(asyncio.ensure_future(store._router.for_range(key).close()))
        return future

    monkeypatch.setattr(store, "submit_range", broken)
    assert await read_all(broker, there[8][0]) == there[8:]
    await asyncio.gather(*closing)
    assert len(ranges) == len(closing) > 4
