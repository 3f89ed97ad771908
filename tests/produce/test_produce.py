"""Check Produce: acknowledged batches are in the log; rejected ones get the right error."""

import asyncio
import random
import struct
from time import time as now

import pytest

from korvet.base.errors import ErrorCode as E
from korvet.broker.server import connected
from korvet.config.broker_config import load
from korvet.fetch.delayed import DelayedFetch
from korvet.fetch.partition_reader import FetchParams, PartitionFetch
from korvet.wire import compression, records
from korvet.wire.messages.fetch import FetchPartition
from korvet.wire.messages.produce import (
    PartitionProduceResponse,
)
from korvet.wire.records import LOG_APPEND_TIME, Record
from tests.support.connected_broker import Broker
from tests.support.exchanges import (
    GOOD,
    SHAPES,
    fetch,
    packed,
    produce,
    rows,
    rows_in,
    shapes,
    stamp_with,
)
from tests.support.redis_servers import TestServer


@shapes
@pytest.mark.parametrize("version", range(14))
async def test_acknowledged_records_are_fetched_at_their_offsets(
    broker: Broker, form: str, mode: str, version: int
) -> None:
    await broker.create("t", storage_format=form, offset_mode=mode)
    first = await produce(broker, packed(rows(b"a", b"b"), version), version=version)
    second = await produce(broker, packed(rows(b"c"), version), version=version)
    assert (first.error_code, second.error_code) == (E.NONE, E.NONE)
    assert second.base_offset >= first.base_offset + 2
    found = rows_in((await fetch(broker, first.base_offset)).records)
    assert [(row[0], row[3]) for row in found] == [
        (first.base_offset, b"a"),
        (first.base_offset + 1, b"b"),
        (second.base_offset, b"c"),
    ]


@shapes
@pytest.mark.parametrize("version", range(19))
async def test_every_version_of_fetch_gets_its_own_format(
    broker: Broker, form: str, mode: str, version: int
) -> None:
    await broker.create("t", storage_format=form, offset_mode=mode)
    base = (await produce(broker, packed(rows(b"a", b"b"), 13))).base_offset
    answer = await fetch(broker, base, version=version)
    assert (answer.error_code, answer.high_watermark) == (E.NONE, base + 2)
    found = rows_in(answer.records, version)
    assert [(row[0], row[2], row[3]) for row in found] == [
        (base, b"k", b"a"),
        (base + 1, b"k", b"b"),
    ]


@pytest.mark.parametrize("form", ["record", "batch"])
@pytest.mark.parametrize("codec", range(5), ids=compression.NAMES)
async def test_every_codec_arrives(broker: Broker, form: str, codec: int) -> None:
    await broker.create("t", storage_format=form, offset_mode="dense")
    made = rows(*(b"%d" % n * 50 for n in range(20)))
    assert (await produce(broker, packed(made, 13, codec))).error_code == E.NONE
    found = rows_in((await fetch(broker, 0)).records)
    assert [row[3] for row in found] == [row[3] for row in made]


def blamed(answer: PartitionProduceResponse) -> list[int]:
    """Return the indexes of the records that a batch was rejected for."""
    return [row.batch_index for row in answer.record_errors]


def broken(data: bytes, at: int) -> bytes:
    out = bytearray(data)
    out[at] ^= 1
    return bytes(out)


REFUSED = [
    (None, E.INVALID_RECORD),
    (b"", E.INVALID_RECORD),
    (GOOD[:-1], E.INVALID_RECORD),
    (broken(GOOD, 70), E.CORRUPT_MESSAGE),
    (broken(GOOD, 16), E.CORRUPT_MESSAGE),
    (broken(GOOD, 7), E.INVALID_RECORD),
    (GOOD + GOOD, E.INVALID_RECORD),
    (packed(rows(b"a"), 1), E.INVALID_RECORD),
    (packed(rows(bytes(3000)), 13), E.MESSAGE_TOO_LARGE),
]


def resealed(data: bytes, at: int, value: bytes) -> bytes:
    """Return the batch with other bytes in its body, and their CRC."""
    out = bytearray(data)
    out[at : at + len(value)] = value
    struct.pack_into(">I", out, 17, records.checksum(out))
    return bytes(out)


@pytest.mark.parametrize(
    "data",
    [
        resealed(GOOD, 61, bytes(4)),
        resealed(GOOD, 61, b"\xff" * 8),
        resealed(packed(rows(b"a" * 99), 13, compression.GZIP), 61, b"no gzip at all"),
        resealed(packed(rows(b"a" * 99), 13, compression.LZ4), 61, b"no lz4"),
    ],
)
async def test_records_that_do_not_parse_are_not_retriable(broker: Broker, data: bytes) -> None:
    await broker.create("t")
    answer = await produce(broker, data)
    assert answer.error_code == E.INVALID_RECORD
    assert not E.INVALID_RECORD.retriable


@shapes
async def test_a_rejected_batch_leaves_nothing_in_the_log(
    broker: Broker, form: str, mode: str
) -> None:
    await broker.create("t", storage_format=form, offset_mode=mode, max_message_bytes="2000")
    for number, (data, error) in enumerate(REFUSED):
        answer = await produce(broker, data)
        assert E(answer.error_code) is error, f"row {number}: {answer.error_message}"
        assert answer.base_offset == -1
    stream = broker.services.keys.partition("t", 0).stream
    assert await broker.services.store.command("XLEN", stream) == 0


@shapes
@pytest.mark.parametrize("codec", [compression.NONE, compression.GZIP, compression.ZSTD])
async def test_a_compressed_record_that_is_too_large_is_named(
    broker: Broker, form: str, mode: str, codec: int
) -> None:
    await broker.create(
        "t", storage_format=form, offset_mode=mode, max_decompressed_message_bytes="1000"
    )
    assert (await produce(broker, packed(rows(bytes(999)), 13, codec))).error_code == E.NONE
    answer = await produce(broker, packed(rows(b"a", bytes(1000), b"b"), 13, codec))
    if codec == compression.NONE:  # As with Kafka: only what must be decompressed is measured.
        assert answer.error_code == E.NONE
        return
    assert answer.error_code == E.INVALID_RECORD
    assert [row.batch_index for row in answer.record_errors] == [1]
    assert "max.decompressed.message.bytes is 1000" in answer.error_message


@pytest.mark.parametrize("acks", [2, -2, 100])
async def test_invalid_acks_are_rejected(broker: Broker, acks: int) -> None:
    await broker.create("t")
    answer = await produce(broker, GOOD, acks=acks)
    assert E(answer.error_code) is E.INVALID_REQUIRED_ACKS


async def test_more_copies_than_replicas_are_rejected(broker: Broker) -> None:
    await broker.create("t")
    answer = await produce(broker, packed(rows(b"a"), 0), acks=2, version=0)
    assert E(answer.error_code) is E.NOT_ENOUGH_REPLICAS


async def test_acks_0_has_no_response_and_writes_the_batch(broker: Broker) -> None:
    await broker.create("t", offset_mode="dense")
    assert await produce(broker, GOOD, acks=0) is None
    assert len(rows_in((await fetch(broker, 0, wait=2000, least=1)).records)) == 2


async def test_unknown_topics_and_partitions_get_their_errors(broker: Broker) -> None:
    await broker.create("t", 2)
    assert (await produce(broker, GOOD, number=2)).error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    assert (await produce(broker, GOOD, number=-1)).error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    assert (await produce(broker, GOOD, name="absent")).error_code == E.UNKNOWN_TOPIC_ID
    assert (await fetch(broker, 0, number=2)).error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    assert (await fetch(broker, 0, name="absent")).error_code == E.UNKNOWN_TOPIC_ID
    by_name = await fetch(broker, 0, name="absent", version=12)
    assert by_name.error_code == E.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", range(19))
async def test_a_fetch_of_a_recreated_topic_gets_no_id_error_for_a_name(
    broker: Broker, version: int
) -> None:
    await broker.create("t")
    place = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100)
    waiting = PartitionFetch(await broker.made_again("t"), place)
    params = FetchParams(version, "test", 0, 100, committed=False)
    services = broker.services
    await DelayedFetch(services.notifier, [waiting], 0, services.partition_reader, params).run()
    known = E.UNKNOWN_TOPIC_ID if version >= 13 else E.UNKNOWN_TOPIC_OR_PARTITION
    assert waiting.response is not None and waiting.response.error_code == known


async def test_producing_to_a_name_creates_the_topic(broker: Broker) -> None:
    assert (await produce(broker, GOOD, name="new", version=12)).error_code == E.NONE
    assert await broker.services.topics.get("new") is not None
    refused = await produce(broker, GOOD, name="a b", version=12)
    assert refused.error_code in (E.INVALID_TOPIC_EXCEPTION, E.UNKNOWN_TOPIC_OR_PARTITION)


async def test_a_duplicate_batch_gets_the_stored_offset(broker: Broker) -> None:
    await broker.create("t", offset_mode="dense")
    batches = [packed(rows(b"a"), 13, producer=(5, 0, n)) for n in range(3)]
    for n, batch in enumerate(batches):
        assert (await produce(broker, batch)).base_offset == n
    again = await produce(broker, batches[1])
    assert (again.error_code, again.base_offset) == (E.NONE, 1)
    gap = await produce(broker, packed(rows(b"a"), 13, producer=(5, 0, 9)))
    assert gap.error_code == E.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert len(rows_in((await fetch(broker, 0)).records)) == 3


@pytest.mark.parametrize(("form", "mode"), [*SHAPES, ("batch", "bytes")], ids=lambda word: word)
async def test_a_sequence_without_a_producer_id_is_ignored(
    broker: Broker, form: str, mode: str
) -> None:
    """Clients may set the sequence to 0 in each batch of a producer that is not idempotent."""
    await broker.create("t", storage_format=form, offset_mode=mode)
    answers = [
        await produce(broker, packed(rows(value), 13, producer=(-1, -1, 0)))
        for value in (b"a", b"b")
    ]
    assert [row.error_code for row in answers] == [E.NONE, E.NONE]
    found = rows_in((await fetch(broker, answers[0].base_offset)).records)
    assert [row[3] for row in found] == [b"a", b"b"]


@pytest.mark.parametrize("form", ["record", "batch"])
async def test_a_topic_with_log_append_time_stamps_its_records(broker: Broker, form: str) -> None:
    kind = "LogAppendTime"
    await broker.create("t", storage_format=form, message_timestamp_type=kind, offset_mode="dense")
    answer = await produce(broker, packed(rows(b"a", b"b", time=5), 13))
    assert answer.log_append_time_ms > 5
    found = rows_in((await fetch(broker, 0)).records)
    assert [row[1] for row in found] == [answer.log_append_time_ms] * 2


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("form", ["record", "batch"])
@pytest.mark.parametrize("codec", ["none", "gzip"])
async def test_old_fetch_versions_return_the_timestamp_type(
    broker: Broker, form: str, version: int, codec: str
) -> None:
    await broker.create("t", storage_format=form, offset_mode="dense", compression_type=codec)
    assert (await produce(broker, packed(rows(b"a", time=5), 13))).error_code == E.NONE
    await stamp_with(broker, "LogAppendTime")
    appended = await produce(broker, packed(rows(b"b", b"c", time=5), 13, compression.GZIP))
    records_sent = bytes((await fetch(broker, 0, version=version)).records)
    times = [row[1] for row in rows_in(records_sent, version)]
    assert times == [5, appended.log_append_time_ms, appended.log_append_time_ms]
    kinds, at = [], 0
    while at < len(records_sent):
        _, size, _, _, attributes = struct.unpack_from(">qiIbb", records_sent, at)
        kinds.append(attributes)
        at += 12 + size
    assert kinds == [0, LOG_APPEND_TIME, LOG_APPEND_TIME]


@pytest.mark.parametrize("version", [3, 4, 18])
@pytest.mark.parametrize("form", ["record", "batch"])
async def test_each_record_has_the_time_of_its_append(
    broker: Broker, form: str, version: int
) -> None:
    await broker.create("t", storage_format=form, offset_mode="dense")
    times = []
    for turn, kind in enumerate(("CreateTime", *["LogAppendTime"] * 3, "CreateTime")):
        await stamp_with(broker, kind)
        answer = await produce(broker, packed(rows(b"a", b"b", time=turn), 13))
        assert (answer.log_append_time_ms < 0) == (kind == "CreateTime")
        times += [max(turn, answer.log_append_time_ms)] * 2
    found = rows_in((await fetch(broker, 0, version=version)).records, version)
    assert [row[1] for row in found] == times


@pytest.mark.parametrize("form", ["record", "batch"])
@pytest.mark.parametrize(
    ("setting", "bad"),
    [("message_timestamp_after_max_ms", 2**45), ("message_timestamp_before_max_ms", 2**35)],
)
async def test_records_outside_the_timestamp_range_are_rejected_by_index(
    broker: Broker, form: str, setting: str, bad: int
) -> None:
    await broker.create("t", storage_format=form, **{setting: "100000"})
    good = int(now() * 1000)
    times = (good, bad, good, bad)
    sent: list[Record] = [(at, time, b"k", b"v", []) for at, time in enumerate(times)]
    answer = await produce(broker, packed(sent, 13))
    assert (answer.error_code, blamed(answer)) == (E.INVALID_TIMESTAMP, [1, 3])
    assert (await produce(broker, packed(rows(b"v", time=good), 13))).error_code == E.NONE


@pytest.mark.parametrize("form", ["record", "batch"])
async def test_records_without_a_timestamp_are_not_checked_for_age(
    broker: Broker, form: str
) -> None:
    await broker.create("t", storage_format=form, message_timestamp_before_max_ms="1")
    assert (await produce(broker, packed(rows(b"a", time=-1), 13))).error_code == E.NONE


@pytest.mark.parametrize("form", ["record", "batch"])
async def test_a_compacted_topic_names_the_records_without_keys(broker: Broker, form: str) -> None:
    await broker.create("t", storage_format=form, cleanup_policy="compact")
    sent: list[Record] = [
        (at, 0, key, b"v", []) for at, key in enumerate((None, b"a", b"", None, b"b"))
    ]
    answer = await produce(broker, packed(sent, 13))
    assert (answer.error_code, blamed(answer)) == (E.INVALID_RECORD, [0, 3])
    assert "2 of 5 records" in str(answer.error_message)
    assert (await produce(broker, packed(rows(b"v"), 13))).error_code == E.NONE


@pytest.mark.parametrize("version", range(3, 14))
async def test_a_produce_by_name_to_a_recreated_topic_gets_no_id_error(
    broker: Broker, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create("t")
    old = await broker.made_again("t")
    data = packed(rows(b"v"), version)
    with monkeypatch.context() as late:  # this broker has not read the topic table again
        late.setattr(broker.services.topics, "peek", lambda _: old)
        late.setattr(broker.services.topics, "peek_id", lambda _: old)
        answer = await produce(broker, data, version=version)
    known = E.UNKNOWN_TOPIC_ID if version >= 13 else E.UNKNOWN_TOPIC_OR_PARTITION
    assert answer.error_code == known
    assert (await produce(broker, data, version=version)).error_code == E.NONE


@pytest.mark.parametrize("form", ["record", "batch"])
async def test_a_value_that_redis_does_not_take_is_refused_alone(
    valkey_server: TestServer, form: str
) -> None:
    """Redis closed the connection: the requests of all clients failed."""
    with valkey_server.client() as client:
        client.config_set("proto-max-bulk-len", 1 << 20)
        options = {"redis": valkey_server.url, "namespace": f"values-{form}"}
        config = load(options, sets=["message.max.bytes=4000000"], environ={})
        async with connected(config) as services:
            broker = Broker(services)
            await broker.create("t", storage_format=form)
            large = packed(rows(random.Random(1).randbytes(2 << 20)), 13)
            connections = services.store.connection_epoch
            answers = await asyncio.gather(
                *(produce(broker, each) for each in (GOOD, large, GOOD, large))
            )
            small, refused = {E.NONE}, {E.MESSAGE_TOO_LARGE}
            assert {each.error_code for each in answers[::2]} == small
            assert {each.error_code for each in answers[1::2]} == refused
            assert "proto-max-bulk-len of Redis is 1048576" in answers[1].error_message
            assert services.store.connection_epoch == connections
        client.config_set("proto-max-bulk-len", 512 << 20)
