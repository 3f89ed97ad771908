"""Check Fetch: the records it returns, their size, and the position it continues at."""

import asyncio
import gc
from random import Random
from time import monotonic
from time import time as now
from typing import Any

import pytest

from korvet.base.errors import ErrorCode as E
from korvet.log.cleaner import LogCleaner
from korvet.log.size_estimates import STALE_S
from korvet.log.validator import prepare_append
from korvet.wire import compression
from korvet.wire.messages.fetch import FetchRequest
from korvet.wire.records import Record
from tests.selection import seeds
from tests.support.connected_broker import Broker
from tests.support.exchanges import (
    SHAPES,
    fetch,
    note_read,
    note_sent,
    packed,
    produce,
    rows,
    rows_in,
    shapes,
)


@pytest.mark.parametrize(
    ("offset", "epoch", "error"),
    [
        (2, -1, E.OFFSET_OUT_OF_RANGE),
        (11, -1, E.OFFSET_OUT_OF_RANGE),
        (-1, -1, E.OFFSET_OUT_OF_RANGE),
        (3, -1, E.NONE),
        (10, -1, E.NONE),
        (5, 0, E.NONE),
        (5, 1, E.UNKNOWN_LEADER_EPOCH),
        (5, -2, E.NONE),
    ],
)
async def test_a_fetch_begins_between_the_start_and_the_end(
    broker: Broker, offset: int, epoch: int, error: E
) -> None:
    await broker.create("t", offset_mode="dense")
    await produce(broker, packed(rows(*[b"v"] * 10), 13))
    topic = await broker.services.topics.get("t")
    assert topic is not None
    truncate = broker.services.keys.partition("t", 0, topic.id).delete_records(before=3)
    await broker.services.store.run(truncate)
    answer = await fetch(broker, offset, epoch=epoch)
    assert E(answer.error_code) is error
    if error is E.NONE:
        assert answer.log_start_offset == 3
        assert [row[0] for row in rows_in(answer.records)] == list(range(offset, 10))


@shapes
async def test_a_fetch_of_few_bytes_gets_the_first_batch_whole(
    broker: Broker, form: str, mode: str
) -> None:
    await broker.create("t", storage_format=form, offset_mode=mode)
    base = (await produce(broker, packed(rows(bytes(5000)), 13))).base_offset
    await produce(broker, packed(rows(bytes(5000)), 13))
    for size in (0, 1, 100):
        found = rows_in((await fetch(broker, base, size=size)).records)
        assert [row[0] for row in found] == [base]


@shapes
async def test_a_reader_of_an_empty_log_gets_all_later_records_that_fit(
    broker: Broker, form: str, mode: str
) -> None:
    await broker.create("t", storage_format=form, offset_mode=mode)
    await fetch(broker, 0)
    first = (await produce(broker, packed(rows(*[b"v"] * 10), 13))).base_offset
    answer = await fetch(broker, first, size=1 << 16)
    assert [row[0] for row in rows_in(answer.records)] == list(range(first, first + 10))


@shapes
@pytest.mark.parametrize("small", [0, 50])
async def test_of_what_others_append_meanwhile_no_more_is_read_than_about_what_fits(
    broker: Broker, form: str, mode: str, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create("t", storage_format=form, offset_mode=mode)
    topic = await broker.services.topics.get("t")
    assert topic is not None
    for _ in range(small):
        await produce(broker, packed(rows(b"small"), 13))
    at = (await fetch(broker, 0)).high_watermark
    store = broker.services.store
    for _ in range(40):
        data = packed(rows(Random(7).randbytes(100_000)), 13)
        settings = broker.services.settings
        call = prepare_append(topic, 0, data, version=13, now_ms=0, settings=settings)
        assert (await store.run(call)).error == E.NONE
    read = note_read(broker, monkeypatch)
    later = monotonic() + STALE_S
    monkeypatch.setattr("korvet.log.size_estimates.monotonic", lambda: later)
    assert len(rows_in((await fetch(broker, at, size=500_000)).records)) == 4
    assert max(read) <= 1_500_000  # of 4,000,000


UNEVEN = {
    "small before large": [[20] * 200] * 20 + [[300_000]] * 12,
    "large before small": [[300_000]] * 12 + [[20] * 200] * 20,
    "large among small": ([[50] * 200] * 4 + [[700_000]]) * 3,
    "once one large": [[900_000]] + [[20] * 200] * 20,
}


@shapes
@pytest.mark.parametrize("plan", UNEVEN.values(), ids=UNEVEN)
async def test_uneven_records_are_read_until_the_response_is_full(
    broker: Broker, form: str, mode: str, plan: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create("t", storage_format=form, offset_mode=mode)
    random, size = Random(7), 100_000
    there: list[tuple[int, int]] = []
    for sizes in plan:
        values = [random.randbytes(n) for n in sizes]
        base = (await produce(broker, packed(rows(*values), 13))).base_offset
        there += [(base + n, length + 30) for n, length in enumerate(sizes)]
    read = note_read(broker, monkeypatch)
    at = 0
    while at < len(there):
        read.clear()
        found = rows_in((await fetch(broker, there[at][0], size=size)).records)
        got = [row[0] for row in found if row[0] >= there[at][0]]
        assert got == [offset for offset, _ in there[at : at + len(got)]]
        answered = sum(cost for _, cost in there[at : at + len(got)])
        # The next batch did not fit, or half of the bytes came, or the max number of records.
        left = sum(cost for _, cost in there[at + len(got) : at + len(got) + 200])
        assert answered + left >= size / 2 or at + len(got) == len(there) or len(got) >= 2000
        assert sum(read) <= 2_000_000 and len(read) <= 4
        at += len(got)


@shapes
@pytest.mark.parametrize("version", range(4))
async def test_a_reader_of_message_sets_passes_the_end_of_a_batch_that_was_compacted_away(
    broker: Broker, form: str, mode: str, version: int
) -> None:
    configs = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01"}
    await broker.create("t", storage_format=form, offset_mode=mode, **configs)

    async def put(*keys: bytes) -> int:
        sent: list[Record] = [(at, int(now() * 1000), key, key, []) for at, key in enumerate(keys)]
        base: int = (await produce(broker, packed(sent, 13))).base_offset
        return base

    first = await put(b"a", b"b", b"c")
    second = await put(b"b", b"c")
    last = await put(b"end")
    topic = await broker.services.topics.get("t")
    assert topic is not None
    assert await LogCleaner(broker.services.store, topic, 0).run() is not None
    size = 28 if version < 2 else 36  # the size of one message: no room for a second entry
    for offset in (first + 1, first + 2, second):
        answer = await fetch(broker, offset, version=version, size=size)
        assert answer.high_watermark == last + 1
        assert rows_in(answer.records, version)[0][:3:2] == (second, b"b")


@pytest.mark.parametrize("version", range(2, 19))
@pytest.mark.parametrize("form", ["record", "batch"])
async def test_what_was_compressed_with_zstd_is_read_in_every_version(
    broker: Broker, form: str, version: int
) -> None:
    await broker.create("t", storage_format=form, offset_mode="dense", compression_type="zstd")
    sent = packed(rows(b"a" * 500, b"b" * 500, time=5), 13, compression.ZSTD)
    assert (await produce(broker, sent)).error_code == E.NONE
    answer = await fetch(broker, 0, version=version)
    assert answer.error_code == E.NONE
    assert rows_in(answer.records, version) == rows(b"a" * 500, b"b" * 500, time=5)


@pytest.mark.parametrize("codec", ["lz4", "zstd", "gzip", "snappy", "none"])
async def test_records_compressed_in_redis_count_with_their_sent_size(
    broker: Broker, codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = [bytes([n]) * 50_000 for n in range(20)]
    await broker.create("t", offset_mode="dense", storage_compression=codec)
    assert (await produce(broker, packed(rows(*values), 13))).error_code == E.NONE
    sent = note_sent(broker, monkeypatch)
    seen: list[bytes | None] = []
    while len(seen) < len(values):
        answer = await fetch(broker, len(seen), size=170_000)
        assert len(bytes(answer.records)) <= 170_000
        found = rows_in(answer.records)
        assert len(found) == min(3, len(values) - len(seen))
        seen += [row[3] for row in found]
    assert seen == values
    asked = [command[-1] for command in sent if command[0] == "XRANGE"]
    assert max(asked) == 3  # records requested from Redis: about as many as fit


@pytest.mark.parametrize("also", [0, 200])
async def test_large_foreign_entries_are_read_only_until_the_response_is_full(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, also: int
) -> None:
    await broker.create("t", offset_mode="dense")
    for _ in range(also):
        await produce(broker, packed(rows(b"small"), 13))
    stream = broker.services.keys.partition("t", 0).stream
    for _ in range(40):
        await broker.services.store.submit_command("XADD", stream, "*", "value", b"x" * 100_000)
    read = note_read(broker, monkeypatch, measure=len)
    at = also
    while at < also + 40:
        at += len(rows_in((await fetch(broker, at, size=500_000)).records))
    assert max(read[bool(also) :]) <= 8


async def test_a_fetch_continues_after_appends_of_other_brokers(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create("t", offset_mode="dense", storage_format="batch")
    topic = await broker.services.topics.get("t")
    assert topic is not None
    asked: list[Any] = []
    submit = broker.services.store.submit_command

    def counted(*command: Any) -> Any:
        asked.append(command[0])
        return submit(*command)

    async def elsewhere(value: bytes) -> None:
        call = prepare_append(
            topic,
            0,
            packed(rows(value), 13),
            version=13,
            now_ms=0,
            settings=broker.services.settings,
        )
        assert (await broker.services.store.run(call)).error == E.NONE

    await fetch(broker, 0)  # a partition that was read is cached
    await produce(broker, packed(rows(b"a"), 13))
    await elsewhere(b"b")
    await produce(broker, packed(rows(b"c"), 13))
    monkeypatch.setattr(broker.services.store, "submit_command", counted)
    for reads in (1, 0):
        asked.clear()
        found = rows_in((await fetch(broker, 0)).records)
        assert [row[3] for row in found] == [b"a", b"b", b"c"]
        assert asked.count("XRANGE") == reads
    one = len(packed(rows(b"a"), 13)) + 40
    asked.clear()
    assert len(rows_in((await fetch(broker, 0, size=one)).records)) == 1
    assert asked.count("XRANGE") == 0


async def test_what_a_failover_lost_is_not_fetched(broker: Broker) -> None:
    """The promoted replica lacks the last append, and takes another one at that offset."""
    await broker.create("t", offset_mode="dense", storage_format="batch")
    topic = await broker.services.topics.get("t")
    assert topic is not None
    store, keys = broker.services.store, broker.services.keys.partition("t", 0)
    await fetch(broker, 0)  # a partition that was read is cached
    await produce(broker, packed(rows(b"a"), 13))
    seen = {key: await store.command("DUMP", key) for key in (keys.log, keys.stream)}
    await produce(broker, packed(rows(b"lost"), 13))
    assert [row[3] for row in rows_in((await fetch(broker, 0)).records)] == [b"a", b"lost"]
    for key, dumped in seen.items():
        await store.command("RESTORE", key, 0, dumped, "REPLACE")
    for lane in store._router.connections():
        lane.renew("the server is gone")
    await store.ready()
    call = prepare_append(
        topic,
        0,
        packed(rows(b"b"), 13),
        version=13,
        now_ms=0,
        settings=broker.services.settings,
    )
    assert (await store.run(call)).base == 1
    assert [row[3] for row in rows_in((await fetch(broker, 0)).records)] == [b"a", b"b"]
    assert [row[3] for row in rows_in((await fetch(broker, 1)).records)] == [b"b"]


@pytest.mark.parametrize("mode", ["time", "dense"])
async def test_an_offset_above_the_end_is_out_of_range_if_nothing_was_lost(
    broker: Broker, mode: str
) -> None:
    await broker.create("t", offset_mode=mode)
    base = (await produce(broker, packed(rows(b"a"), 13))).base_offset
    while int(now() * 1000) << 10 <= base + 5 and mode == "time":  # until the next millisecond
        await fetch(broker, 0)
    assert E((await fetch(broker, base + 5)).error_code) is E.OFFSET_OUT_OF_RANGE


async def test_a_fetch_that_a_broken_connection_ends_leaves_no_unretrieved_error(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """A fetch sends two commands at once: while Redis was away, each fetch logged three lines."""
    await broker.create("t", offset_mode="dense")
    await produce(broker, packed(rows(b"a"), 13))
    await fetch(broker, 0)  # from here on a fetch sends both commands at once
    for lane in broker.services.store._router.connections():
        lane.leave("the server is gone")
    assert E((await fetch(broker, 0)).error_code) is E.KAFKA_STORAGE_ERROR
    gc.collect()
    assert not [row for row in caplog.records if row.name == "asyncio"]


async def test_a_fetch_continues_with_the_further_entries_of_a_millisecond(
    broker: Broker,
) -> None:
    await broker.create("t")
    stream = broker.services.keys.partition("t", 0).stream
    for at in ("5-0", *(f"5-{2000 + n}" for n in range(20)), "6-0"):
        await broker.services.store.command("XADD", stream, at, "value", at)
    for offset in (5 << 10, (5 << 10) + 1):
        await fetch(broker, offset, size=1)
        found = rows_in((await fetch(broker, offset, size=1)).records)
        assert [row[3] for row in found] == [b"5-2000" if offset & 1 else b"5-0"]


async def test_a_fetch_continues_after_1500_entries_that_are_no_batches(
    broker: Broker,
) -> None:
    """A fetch of large batches requests one entry at a time, and gets one foreign entry."""
    await broker.create("t", storage_format="batch", offset_mode="dense")
    await produce(broker, packed(rows(b"a" * 1000), 13))
    stream = broker.services.keys.partition("t", 0).stream
    adds = (broker.services.store.command("XADD", stream, "*", "value", "v") for _ in range(1500))
    await asyncio.gather(*adds)
    await produce(broker, packed(rows(b"b"), 13))
    await fetch(broker, 0, size=1)
    found = rows_in((await fetch(broker, 1, size=1)).records)
    assert [row[3] for row in found] == [b"b"]


@pytest.mark.parametrize("session", [0, 7])
async def test_an_unknown_fetch_session_is_refused(broker: Broker, session: int) -> None:
    for epoch, error in ((-1, 0), (0, 0), *((n, 70) for n in (1, 3, 2**31 - 1, -2))):
        request = FetchRequest(
            max_wait_ms=0, min_bytes=0, session_id=session, session_epoch=epoch, topics=[]
        )
        assert (await broker.ask(request)).error_code == error, epoch


@pytest.mark.parametrize("seed", seeds(range(4), quick=1))
async def test_any_walk_over_a_log_sees_every_record_once(broker: Broker, seed: int) -> None:
    """Fetches of any size over batches of any size return each record once."""
    random = Random(seed)
    form, mode = SHAPES[seed]
    await broker.create("t", storage_format=form, offset_mode=mode)
    expected: list[tuple[int, bytes]] = []
    for _ in range(30):
        values = [
            random.randbytes(random.choice((0, 10, 3000))) for _ in range(random.randint(1, 9))
        ]
        data = packed(rows(*values), 13, random.randrange(5))
        base = (await produce(broker, data)).base_offset
        expected += [(base + n, value) for n, value in enumerate(values)]
    found: list[tuple[int, bytes | None]] = []
    position = expected[0][0]
    while position <= expected[-1][0]:
        answer = await fetch(broker, position, size=random.choice((1, 500, 20_000)))
        got = [(row[0], row[3]) for row in rows_in(answer.records) if row[0] >= position]
        assert got, position
        found += got
        position = got[-1][0] + 1
    assert found == expected
