"""Check entries added with redis-cli to topics whose entries are whole batches or sets."""

import pytest

from korvet.base.errors import ErrorCode as E
from korvet.legacy.fetch import LegacyReader
from korvet.legacy.topics import LegacyTopics
from korvet.log import entries_query
from korvet.log.layouts import bytes as bytes_layout
from korvet.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from korvet.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from korvet.wire.requests_v07 import Fetch
from tests.support.connected_broker import Broker
from tests.support.raw_client import batch, to_produce

ENDLESS = b"\xff\xff\xff\xfc\x01\x00"
MALFORMED: tuple[tuple[bytes | str, ...], ...] = (
    ("value", "v"),
    ("set", "x"),
    ("set", "x", "count", "1", "tail", "0"),
    ("set", "x", "count", "5", "tail", "0"),
    ("set", "x", "count", "soon", "tail", "0"),
    ("set", "x", "count", "1", "tail", "soon"),
    ("set", ENDLESS, "count", str(len(ENDLESS)), "tail", "0"),
    ("append.time", "soon", "set", "x", "count", "1", "tail", "0"),
    ("append.time", "5"),
    ("batch", "x", "count", "5", "tail", "0"),
    ("batch", "x", "count", "soon"),
    ("batch", "x" * 80, "count", "1", "tail", "0"),
    ("batch", "x" * 80, "count", "9" * 5000, "tail", "0"),
)


@pytest.mark.parametrize("mode", ["bytes", "dense"])
@pytest.mark.parametrize("fields", MALFORMED)
async def test_records_before_and_after_foreign_entries_are_read(
    broker: Broker, mode: str, fields: tuple[bytes | str, ...]
) -> None:
    await broker.create("t", 1, offset_mode=mode, storage_format="batch")
    stream = broker.services.keys.partition("t", 0).stream
    for value in (b"before", b"behind"):
        answer = await broker.ask(to_produce("t", batch([value])), 9)
        assert answer.responses[0].partition_responses[0].error_code == E.NONE
        await broker.services.store.command("XADD", stream, "*", *fields)
    assert b"before" in await fetched(broker, 0)
    end = await listed(broker, -1)
    for offset in range(1, end + 1, 5):
        for version in (0, 3, 12):
            await fetched(broker, offset, version)
    assert any([b"behind" in await fetched(broker, offset) for offset in range(end)])
    for moment in (-3, -2, 0, 5, 2**50):
        await listed(broker, moment)
    if mode == "bytes":
        topic = await broker.services.topics.get("t")
        assert topic is not None
        asked = Fetch(topic="t", partition=0, offset=0, max_bytes=1 << 20)
        services = broker.services
        topics = LegacyTopics(services.node, services.dynamic_config)
        parts = await LegacyReader(services.store, topics, services.response_memory).fetch(
            asked, 1 << 20
        )
        assert b"before" in b"".join(parts)


@pytest.mark.parametrize("count", [1, 10**15])
async def test_foreign_entries_with_any_declared_count_are_read(broker: Broker, count: int) -> None:
    await broker.create("t", 1, offset_mode="time", storage_format="batch")
    stream = broker.services.keys.partition("t", 0).stream
    reported = (
        "append.time",
        5,
        "batch",
        batch([b"one", b"two"]),
        "count",
        count,
        "max.timestamp",
        5,
    )
    await broker.services.store.command("XADD", stream, "*", *reported)
    assert b"one" in await fetched(broker, await listed(broker, -2), 3)


@pytest.mark.parametrize("ahead_ms", [0, 10**15])
async def test_readers_of_batches_pass_any_number_of_foreign_entries(
    broker: Broker, ahead_ms: int
) -> None:
    """They have no batch, whether or not their ids have offsets: no rule numbers them."""
    await broker.create("t", 1, offset_mode="time", storage_format="batch")
    services = broker.services
    stream = services.keys.partition("t", 0).stream
    await broker.ask(to_produce("t", batch([b"before"])), 9)
    end = await listed(broker, -1)
    (newest,) = await services.store.command("XREVRANGE", stream, "+", "-", "COUNT", 1)
    far = int(newest[0].partition(b"-")[0]) + 1 + ahead_ms
    for n in range(1500):
        await services.store.command("XADD", stream, f"{far}-{n}", "value", "v")
    await broker.ask(to_produce("t", batch([b"behind"])), 9)
    assert b"before" in await fetched(broker, await listed(broker, -2))
    assert b"behind" in await fetched(broker, end)
    assert services.log_reader.cache.skipped_entries >= 1500


async def fetched(broker: Broker, offset: int, version: int = 12) -> bytes:
    part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic="t", partitions=[part])]
    )
    answer = await broker.ask(request, version)
    return bytes(answer.responses[0].partitions[0].records or b"")


async def listed(broker: Broker, moment: int) -> int:
    part = ListOffsetsPartition(partition_index=0, timestamp=moment)
    topic = ListOffsetsTopic(name="t", partitions=[part])
    answer = await broker.ask(ListOffsetsRequest(replica_id=-1, topics=[topic]), 7)
    found = answer.topics[0].partitions[0]
    assert found.error_code == E.NONE
    return int(found.offset)


def test_a_set_without_an_end_holds_no_records() -> None:
    assert bytes_layout.records_of(0, [b"set", ENDLESS, b"count", b"6", b"tail", b"0"]) == []


@pytest.mark.parametrize("mode", ["time", "dense"])
async def test_an_entry_that_no_client_takes_is_skipped_and_named(
    broker: Broker, mode: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A consumer of librdkafka stopped at one XADD of 120 MB."""
    monkeypatch.setattr(entries_query, "MAX_RECORD_BYTES", 5000)
    await broker.create("t", 1, offset_mode=mode, storage_format="record", max_message_bytes="3000")
    stream = broker.services.keys.partition("t", 0).stream
    for value in (b"before", b"large" * 900, b"huge" * 2000, b"behind"):
        await broker.services.store.command("XADD", stream, "*", "value", value)
    found = await fetched(broker, 0)
    for value in (b"before", b"large" * 900, b"behind"):
        assert value in found
    assert b"huge" not in found
    assert broker.services.log_reader.cache.skipped_entries == 1
    assert "larger than clients take" in caplog.text
