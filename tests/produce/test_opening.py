"""Check that small batches with large content are opened outside the event loop, in turn."""

import threading
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import pytest

from korvet.base.errors import ErrorCode
from korvet.log import append_parts
from korvet.log.opening import MAX_AT_ONCE, TURN_BYTES, in_thread
from korvet.wire import batch_builder, compression, message_sets, records
from korvet.wire.messages.fetch import FetchRequest
from korvet.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.connected_broker import Broker
from tests.support.raw_client import batch, to_fetch, to_produce

LARGE = bytes(3 << 20)
codecs = pytest.mark.parametrize("codec", [1, 2, 3, 4], ids=compression.NAMES[1:])


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, int]]]:
    """Collect which thread has decompressed how many bytes."""
    found: list[tuple[str, int]] = []
    inflate: Any = records.inflate

    def noted(*given: Any) -> Any:
        section = inflate(*given)
        found.append((threading.current_thread().name.split("_")[0], len(section)))
        return section

    monkeypatch.setattr(records, "inflate", noted)
    monkeypatch.setattr(message_sets, "inflate", noted)
    yield found


def codes(answer: Any) -> list[int]:
    """Return the error of each partition."""
    return [row.error_code for topic in answer.responses for row in topic.partition_responses]


@codecs
@pytest.mark.parametrize("layout", ["batch", "record"])
async def test_a_large_content_is_opened_by_the_thread_and_stored(
    broker: Broker, opened: list[tuple[str, int]], codec: int, layout: str
) -> None:
    await broker.create("t", 2, storage_format=layout)
    data = batch([LARGE, b"end"], codec)
    assert codes(await broker.ask(to_produce("t", [data, batch([b"v"])]), 9)) == [0, 0]
    assert [name for name, _ in opened] == ["opener"]
    found = await broker.ask(to_fetch("t"), 11)
    (part,) = found.responses[0].partitions
    rows = records.records_of(bytes(part.records))
    assert [row[3] for row in rows] == [LARGE, b"end"]


async def test_a_request_for_a_known_topic_is_continued_after_the_thread(
    broker: Broker, opened: list[tuple[str, int]]
) -> None:
    await broker.create("t", 2, storage_format="batch")
    rows = [batch([LARGE], compression.ZSTD), batch([b"v"])]
    for _ in range(2):  # the first request reads the topic
        assert codes(await broker.ask(to_produce("t", rows), 9)) == [0, 0]
    assert [name for name, _ in opened] == ["opener"] * 2
    stream = broker.services.keys.partition("t", 1).stream
    assert await broker.services.store.command("XLEN", stream) == 2


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_a_large_message_set_is_opened_by_the_thread(
    broker: Broker, opened: list[tuple[str, int]], version: int
) -> None:
    await broker.create("t", 1, storage_format="batch")
    rows = [(0, 1, None, LARGE, [])]
    data = bytes(message_sets.build(rows, magic=min(version, 1), codec=compression.GZIP))
    assert codes(await broker.ask(to_produce("t", data), version)) == [0]
    assert {name for name, _ in opened} == {"opener"}
    opened.clear()
    answer = await broker.ask(to_fetch("t"), version)
    (part,) = answer.responses[0].partitions
    assert message_sets.parse(bytes(part.records), limit=1 << 26)[0][3] == LARGE
    assert {name for name, _ in opened} <= {"opener"}


async def test_the_event_loop_opens_no_more_than_its_share_of_a_turn(
    broker: Broker, opened: list[tuple[str, int]]
) -> None:
    await broker.create("t", 20, storage_format="batch")
    data = batch([bytes(MAX_AT_ONCE - 1000)], compression.ZSTD)
    assert codes(await broker.ask(to_produce("t", [data] * 20), 9)) == [0] * 20
    # Each wait for the thread ends a turn.
    turns = [
        sum(size for _, size in rows)
        for name, rows in groupby(opened, lambda row: row[0])
        if name == "MainThread"
    ]
    assert 0 < max(turns) <= TURN_BYTES
    assert len(opened) == 20


async def test_many_small_records_are_decoded_by_the_thread(
    broker: Broker, opened: list[tuple[str, int]]
) -> None:
    await broker.create("t", 1, storage_format="record")
    data = batch([b""] * 20_000, compression.ZSTD)
    assert codes(await broker.ask(to_produce("t", data), 9)) == [0]
    assert opened[-1][0] == "opener"


@pytest.mark.parametrize("codec", [compression.NONE, compression.ZSTD])
async def test_many_headers_are_decoded_and_cut_into_parts_by_the_thread(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, codec: int
) -> None:
    await broker.create("t", 1, storage_format="record")
    threads: list[str] = []
    decode: Any = records.decode_section

    def noted(*given: Any) -> Any:
        threads.append(threading.current_thread().name.split("_")[0])
        return decode(*given)

    def cut(*given: Any) -> Any:
        threads.append(threading.current_thread().name.split("_")[0])
        return cut_call(*given)

    cut_call: Any = append_parts._cut_call
    monkeypatch.setattr(append_parts, "_cut_call", cut)
    monkeypatch.setattr(records, "decode_section", noted)
    headers = [("", None)] * 1000
    data = bytes(
        batch_builder.build([(at, 1, None, b"", headers) for at in range(20)], codec=codec)
    )
    assert len(data) < MAX_AT_ONCE // 10
    assert codes(await broker.ask(to_produce("t", data), 9)) == [0]
    assert threads == ["opener", "opener"]


async def test_a_refusal_by_the_thread_holds_no_records() -> None:
    def work() -> None:
        try:
            raise ValueError
        except ValueError:
            raise records.invalid("it is") from None

    with pytest.raises(records.BadBatch) as caught:
        await in_thread(work)
    assert caught.value.__context__ is None
    assert "work" not in {entry.name for entry in caught.traceback}


async def test_an_invalid_large_content_is_refused_and_later_batches_are_stored(
    broker: Broker,
) -> None:
    await broker.create("t", 3, storage_format="batch")
    rows = [(0, 1, None, LARGE, []), (5, 1, None, b"", [])]
    data = bytes(batch_builder.build(rows, codec=compression.ZSTD))
    answer = await broker.ask(to_produce("t", [data, batch([LARGE], 4), batch([b"v"])]), 9)
    assert codes(answer) == [ErrorCode.INVALID_RECORD, 0, 0]


async def test_a_batch_beyond_the_limit_of_its_topic_is_refused(broker: Broker) -> None:
    await broker.create("t", 1, storage_format="batch", max_message_bytes="1000")
    data = batch([bytes(64_000)], compression.ZSTD)
    assert codes(await broker.ask(to_produce("t", data), 9)) == [ErrorCode.MESSAGE_TOO_LARGE]


@pytest.mark.parametrize("codec", [2, 3], ids=["snappy", "lz4"])
def test_a_payload_of_many_tiny_blocks_is_corrupt(codec: int) -> None:
    blocks = compression.MAX_BLOCKS + 1000
    if codec == compression.SNAPPY:
        payload = b"\x82SNAPPY\x00" + b"\0\0\0\1" * 2 + b"\0\0\0\1\0" * blocks
    else:
        payload = bytes.fromhex("04224d18604082") + b"\1\0\0\x80x" * blocks + bytes(4)
    with pytest.raises(compression.CorruptPayload, match="blocks"):
        compression.decompress_produced(codec, payload, 1 << 20)


async def test_of_a_partition_named_twice_the_last_batch_is_stored(broker: Broker) -> None:
    await broker.create("t", 2)
    await broker.create("u", 1)

    def topic(name: str, *rows: tuple[int, bytes]) -> TopicProduceData:
        parts = [PartitionProduceData(index=at, records=batch([value])) for at, value in rows]
        return TopicProduceData(name=name, partition_data=parts)

    wanted = [topic("t", (0, b"a"), (1, b"b"), (0, b"c")), topic("u", (0, b"d"))]
    request = ProduceRequest(acks=-1, timeout_ms=9, topic_data=[*wanted, topic("t", (1, b"e"))])
    answer = await broker.ask(request, 9)
    assert [
        (each.name, [(row.index, row.error_code) for row in each.partition_responses])
        for each in answer.responses
    ] == [("t", [(0, 0), (1, 0)]), ("u", [(0, 0)])]
    fetch: FetchRequest = to_fetch("t", partitions=2)
    found = await broker.ask(fetch, 11)
    values = [
        [row[3] for row in records.records_of(bytes(part.records))]
        for part in found.responses[0].partitions
    ]
    assert values == [[b"c"], [b"e"]]
