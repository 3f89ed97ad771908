"""Produce and Fetch: what is acknowledged is fetched from there, in every version and layout."""

import asyncio
import gc
import struct
from random import Random
from time import monotonic
from time import time as now
from typing import Any
from uuid import uuid4

import pytest

from korvet import fetching
from korvet.compaction import Compaction
from korvet.context import Context
from korvet.errors import ErrorCode as E
from korvet.fetching import Wanted, collect
from korvet.handlers import fetch as handlers_fetch
from korvet.producing import prepare
from korvet.scripts import log
from korvet.shapes import STALE_S
from korvet.wire import codecs, message_sets, records
from korvet.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from korvet.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from korvet.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from korvet.wire.records import LOG_APPEND_TIME, Record
from tests.handlers.conftest import Broker

SHAPES = [("record", "time"), ("record", "dense"), ("batch", "time"), ("batch", "dense")]
shapes = pytest.mark.parametrize(("form", "mode"), SHAPES, ids=lambda word: word)


def rows(*values: bytes, time: int = 0) -> list[Record]:
    return [(n, time, b"k", value, []) for n, value in enumerate(values)]


def packed(made: list[Record], version: int, codec: int = codecs.NONE, **how: Any) -> bytes:
    """The records in the format of that Produce version."""
    if version >= 3:
        return bytes(records.build(made, codec=codec, **how))
    return bytes(message_sets.build(made, magic=0 if version < 2 else 1, codec=codec))


async def produce(
    broker: Broker,
    data: bytes | None,
    *,
    name: str = "t",
    number: int = 0,
    acks: int = -1,
    version: int = 13,
) -> Any:
    """The answer of one partition; None without acks."""
    topic = await broker.node.topics.get(name)
    known = topic.uuid if topic else uuid4()
    row = TopicProduceData(
        name=name, topic_id=known, partition_data=[PartitionProduceData(index=number, records=data)]
    )
    request = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[row])
    answer = await broker.ask(request, version)
    return answer and answer.responses[0].partition_responses[0]


async def fetch(
    broker: Broker,
    offset: int,
    *,
    name: str = "t",
    number: int = 0,
    version: int = 18,
    wait: int = 0,
    size: int = 1 << 20,
    least: int = 0,
    epoch: int = -1,
) -> Any:
    """The answer of one partition."""
    topic = await broker.node.topics.get(name)
    place = FetchPartition(
        partition=number,
        fetch_offset=offset,
        partition_max_bytes=size,
        current_leader_epoch=epoch,
    )
    row = FetchTopic(topic=name, topic_id=topic.uuid if topic else uuid4(), partitions=[place])
    request = FetchRequest(max_wait_ms=wait, min_bytes=least, max_bytes=size, topics=[row])
    answer = await broker.ask(request, version)
    assert answer.error_code == 0 and answer.session_id == 0
    return answer.responses[0].partitions[0]


def told(data: Any, version: int = 18) -> list[Record]:
    """The records of a fetch answer, in the format of its version, at their offsets."""
    blob = b"".join(bytes(part) for part in data) if isinstance(data, list) else bytes(data or b"")
    if version >= 4:
        found = [row for batch in records.batches_in(blob) for row in records.records_of(batch)]
        return found
    found = message_sets.parse(blob, limit=1 << 20) if blob else []
    at, offsets = 0, []
    while at < len(blob):
        offset, size = struct.unpack_from(">qi", blob, at)
        offsets.append(offset)
        at += 12 + size
    return [(offset, *row[1:]) for offset, row in zip(offsets, found, strict=True)]


async def stamp_with(broker: Broker, kind: str) -> None:
    """The topic's message.timestamp.type is changed."""
    change = AlterableConfig(name="message.timestamp.type", config_operation=0, value=kind)
    row = AlterConfigsResource(resource_type=2, resource_name="t", configs=[change])
    answer = await broker.ask(IncrementalAlterConfigsRequest(resources=[row], validate_only=False))
    assert answer.responses[0].error_code == 0


@shapes
@pytest.mark.parametrize("version", range(14))
async def test_what_is_acknowledged_is_fetched_from_there(
    broker: Broker, form: str, mode: str, version: int
) -> None:
    await broker.create("t", storage_format=form, offset_mode=mode)
    first = await produce(broker, packed(rows(b"a", b"b"), version), version=version)
    second = await produce(broker, packed(rows(b"c"), version), version=version)
    assert (first.error_code, second.error_code) == (E.NONE, E.NONE)
    assert second.base_offset >= first.base_offset + 2
    found = told((await fetch(broker, first.base_offset)).records)
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
    found = told(answer.records, version)
    assert [(row[0], row[2], row[3]) for row in found] == [
        (base, b"k", b"a"),
        (base + 1, b"k", b"b"),
    ]


@pytest.mark.parametrize("form", ["record", "batch"])
@pytest.mark.parametrize("codec", range(5), ids=codecs.NAMES)
async def test_every_codec_arrives(broker: Broker, form: str, codec: int) -> None:
    await broker.create("t", storage_format=form, offset_mode="dense")
    made = rows(*(b"%d" % n * 50 for n in range(20)))
    assert (await produce(broker, packed(made, 13, codec))).error_code == E.NONE
    found = told((await fetch(broker, 0)).records)
    assert [row[3] for row in found] == [row[3] for row in made]


def blamed(answer: PartitionProduceResponse) -> list[int]:
    """The places of the records a batch was refused for."""
    return [row.batch_index for row in answer.record_errors]


def broken(data: bytes, at: int) -> bytes:
    out = bytearray(data)
    out[at] ^= 1
    return bytes(out)


GOOD = packed(rows(b"a", b"b"), 13)

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
    """The batch with other bytes in its body, and the CRC of these."""
    out = bytearray(data)
    out[at : at + len(value)] = value
    struct.pack_into(">I", out, 17, records.checksum(out))
    return bytes(out)


@pytest.mark.parametrize(
    "data",
    [
        resealed(GOOD, 61, bytes(4)),
        resealed(GOOD, 61, b"\xff" * 8),
        resealed(packed(rows(b"a" * 99), 13, codecs.GZIP), 61, b"no gzip at all"),
        resealed(packed(rows(b"a" * 99), 13, codecs.LZ4), 61, b"no lz4"),
    ],
)
async def test_records_that_do_not_parse_are_not_worth_another_try(
    broker: Broker, data: bytes
) -> None:
    await broker.create("t")
    answer = await produce(broker, data)
    assert answer.error_code == E.INVALID_RECORD
    assert not E.INVALID_RECORD.retriable


@shapes
async def test_what_cannot_be_stored_is_refused_and_leaves_no_trace(
    broker: Broker, form: str, mode: str
) -> None:
    await broker.create("t", storage_format=form, offset_mode=mode, max_message_bytes="2000")
    for number, (data, error) in enumerate(REFUSED):
        answer = await produce(broker, data)
        assert E(answer.error_code) is error, f"row {number}: {answer.error_message}"
        assert answer.base_offset == -1
    stream = broker.node.keys.partition("t", 0).stream
    assert await broker.node.store.command("XLEN", stream) == 0


@shapes
@pytest.mark.parametrize("codec", [codecs.NONE, codecs.GZIP, codecs.ZSTD])
async def test_a_compressed_record_that_is_too_large_is_named(
    broker: Broker, form: str, mode: str, codec: int
) -> None:
    await broker.create(
        "t", storage_format=form, offset_mode=mode, max_decompressed_message_bytes="1000"
    )
    assert (await produce(broker, packed(rows(bytes(999)), 13, codec))).error_code == E.NONE
    answer = await produce(broker, packed(rows(b"a", bytes(1000), b"b"), 13, codec))
    if codec == codecs.NONE:  # As with Kafka: only what must be decompressed is measured.
        assert answer.error_code == E.NONE
        return
    assert answer.error_code == E.INVALID_RECORD
    assert [row.batch_index for row in answer.record_errors] == [1]
    assert "max.decompressed.message.bytes is 1000" in answer.error_message


@pytest.mark.parametrize("acks", [2, -2, 100])
async def test_acks_that_cannot_be_are_refused(broker: Broker, acks: int) -> None:
    await broker.create("t")
    answer = await produce(broker, GOOD, acks=acks)
    assert E(answer.error_code) is E.INVALID_REQUIRED_ACKS


async def test_more_copies_than_there_are_cannot_be_asked_for(broker: Broker) -> None:
    await broker.create("t")
    answer = await produce(broker, packed(rows(b"a"), 0), acks=2, version=0)
    assert E(answer.error_code) is E.NOT_ENOUGH_REPLICAS


async def test_without_acks_nothing_is_answered_and_all_is_written(broker: Broker) -> None:
    await broker.create("t", offset_mode="dense")
    assert await produce(broker, GOOD, acks=0) is None
    assert len(told((await fetch(broker, 0, wait=2000, least=1)).records)) == 2


async def test_unknown_topics_and_partitions_are_said_so(broker: Broker) -> None:
    await broker.create("t", 2)
    assert (await produce(broker, GOOD, number=2)).error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    assert (await produce(broker, GOOD, number=-1)).error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    assert (await produce(broker, GOOD, name="absent")).error_code == E.UNKNOWN_TOPIC_ID
    assert (await fetch(broker, 0, number=2)).error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    assert (await fetch(broker, 0, name="absent")).error_code == E.UNKNOWN_TOPIC_ID
    by_name = await fetch(broker, 0, name="absent", version=12)
    assert by_name.error_code == E.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", range(19))
async def test_who_waits_for_a_topic_that_is_made_again_is_not_told_of_ids_it_did_not_use(
    broker: Broker, version: int
) -> None:
    await broker.create("t")
    place = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100)
    waiting = Wanted(await broker.made_again("t"), place)
    context = Context(broker.node, FetchRequest.__message__.key, version, "test", "127.0.0.1")
    request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=100, topics=[])
    await collect([waiting], request, context)
    known = E.UNKNOWN_TOPIC_ID if version >= 13 else E.UNKNOWN_TOPIC_OR_PARTITION
    assert waiting.answer is not None and waiting.answer.error_code == known


async def test_producing_to_a_name_creates_the_topic(broker: Broker) -> None:
    assert (await produce(broker, GOOD, name="new", version=12)).error_code == E.NONE
    assert await broker.node.topics.get("new") is not None
    refused = await produce(broker, GOOD, name="a b", version=12)
    assert refused.error_code in (E.INVALID_TOPIC_EXCEPTION, E.UNKNOWN_TOPIC_OR_PARTITION)


async def test_a_batch_sent_again_is_answered_with_its_first_offset(broker: Broker) -> None:
    await broker.create("t", offset_mode="dense")
    batches = [packed(rows(b"a"), 13, producer=(5, 0, n)) for n in range(3)]
    for n, batch in enumerate(batches):
        assert (await produce(broker, batch)).base_offset == n
    again = await produce(broker, batches[1])
    assert (again.error_code, again.base_offset) == (E.NONE, 1)
    gap = await produce(broker, packed(rows(b"a"), 13, producer=(5, 0, 9)))
    assert gap.error_code == E.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert len(told((await fetch(broker, 0)).records)) == 3


@pytest.mark.parametrize(("form", "mode"), [*SHAPES, ("batch", "bytes")], ids=lambda word: word)
async def test_a_sequence_without_a_producer_id_means_nothing(
    broker: Broker, form: str, mode: str
) -> None:
    """Some clients leave it 0 in each batch of a producer that is not idempotent."""
    await broker.create("t", storage_format=form, offset_mode=mode)
    answers = [
        await produce(broker, packed(rows(value), 13, producer=(-1, -1, 0)))
        for value in (b"a", b"b")
    ]
    assert [row.error_code for row in answers] == [E.NONE, E.NONE]
    found = told((await fetch(broker, answers[0].base_offset)).records)
    assert [row[3] for row in found] == [b"a", b"b"]


@pytest.mark.parametrize("form", ["record", "batch"])
async def test_a_topic_may_stamp_its_records(broker: Broker, form: str) -> None:
    kind = "LogAppendTime"
    await broker.create("t", storage_format=form, message_timestamp_type=kind, offset_mode="dense")
    answer = await produce(broker, packed(rows(b"a", b"b", time=5), 13))
    assert answer.log_append_time_ms > 5
    found = told((await fetch(broker, 0)).records)
    assert [row[1] for row in found] == [answer.log_append_time_ms] * 2


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("form", ["record", "batch"])
@pytest.mark.parametrize("codec", ["none", "gzip"])
async def test_old_clients_are_told_whose_time_it_is(
    broker: Broker, form: str, version: int, codec: str
) -> None:
    await broker.create("t", storage_format=form, offset_mode="dense", compression_type=codec)
    assert (await produce(broker, packed(rows(b"a", time=5), 13))).error_code == E.NONE
    await stamp_with(broker, "LogAppendTime")
    appended = await produce(broker, packed(rows(b"b", b"c", time=5), 13, codecs.GZIP))
    records_sent = bytes((await fetch(broker, 0, version=version)).records)
    times = [row[1] for row in told(records_sent, version)]
    assert times == [5, appended.log_append_time_ms, appended.log_append_time_ms]
    kinds, at = [], 0
    while at < len(records_sent):
        _, size, _, _, attributes = struct.unpack_from(">qiIbb", records_sent, at)
        kinds.append(attributes)
        at += 12 + size
    assert kinds == [0, LOG_APPEND_TIME, LOG_APPEND_TIME]


@pytest.mark.parametrize("version", [3, 4, 18])
@pytest.mark.parametrize("form", ["record", "batch"])
async def test_each_record_has_the_time_of_its_own_append(
    broker: Broker, form: str, version: int
) -> None:
    await broker.create("t", storage_format=form, offset_mode="dense")
    times = []
    for turn, kind in enumerate(("CreateTime", *["LogAppendTime"] * 3, "CreateTime")):
        await stamp_with(broker, kind)
        answer = await produce(broker, packed(rows(b"a", b"b", time=turn), 13))
        assert (answer.log_append_time_ms < 0) == (kind == "CreateTime")
        times += [max(turn, answer.log_append_time_ms)] * 2
    found = told((await fetch(broker, 0, version=version)).records, version)
    assert [row[1] for row in found] == times


@pytest.mark.parametrize("form", ["record", "batch"])
@pytest.mark.parametrize(
    ("setting", "bad"),
    [("message_timestamp_after_max_ms", 2**45), ("message_timestamp_before_max_ms", 2**35)],
)
async def test_records_of_another_time_are_refused_and_named(
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
async def test_records_without_a_time_are_as_old_as_they_like(broker: Broker, form: str) -> None:
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
    topic = await broker.node.topics.get("t")
    assert topic is not None
    truncate = log.truncate(broker.node.keys, "t", 0, topic_id=topic.id, before=3)
    await broker.node.store.run(truncate)
    answer = await fetch(broker, offset, epoch=epoch)
    assert E(answer.error_code) is error
    if error is E.NONE:
        assert answer.log_start_offset == 3
        assert [row[0] for row in told(answer.records)] == list(range(offset, 10))


@shapes
async def test_a_fetch_of_few_bytes_gets_the_first_batch_whole(
    broker: Broker, form: str, mode: str
) -> None:
    await broker.create("t", storage_format=form, offset_mode=mode)
    base = (await produce(broker, packed(rows(bytes(5000)), 13))).base_offset
    await produce(broker, packed(rows(bytes(5000)), 13))
    for size in (0, 1, 100):
        found = told((await fetch(broker, base, size=size)).records)
        assert [row[0] for row in found] == [base]


@shapes
async def test_who_read_a_log_while_it_was_empty_gets_all_that_fits_of_what_came(
    broker: Broker, form: str, mode: str
) -> None:
    await broker.create("t", storage_format=form, offset_mode=mode)
    await fetch(broker, 0)
    first = (await produce(broker, packed(rows(*[b"v"] * 10), 13))).base_offset
    answer = await fetch(broker, first, size=1 << 16)
    assert [row[0] for row in told(answer.records)] == list(range(first, first + 10))


@shapes
@pytest.mark.parametrize("small", [0, 50])
async def test_of_what_others_append_meanwhile_no_more_is_read_than_about_what_fits(
    broker: Broker, form: str, mode: str, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create("t", storage_format=form, offset_mode=mode)
    topic = await broker.node.topics.get("t")
    assert topic is not None
    for _ in range(small):
        await produce(broker, packed(rows(b"small"), 13))
    at = (await fetch(broker, 0)).high_watermark
    store, submit = broker.node.store, broker.node.store.submit_command
    for _ in range(40):
        data = packed(rows(Random(7).randbytes(100_000)), 13)
        settings = broker.node.settings
        call = prepare(broker.node.keys, topic, 0, data, version=13, now_ms=0, settings=settings)
        assert (await store.run(call)).error == E.NONE
    read: list[int] = []

    async def counted(*command: Any) -> Any:
        reply = await submit(*command)
        if command[0] == "XRANGE":
            read.append(sum(len(word) for _, fields in reply for word in fields))
        return reply

    monkeypatch.setattr(
        store, "submit_command", lambda *command: asyncio.ensure_future(counted(*command))
    )
    later = monotonic() + STALE_S
    monkeypatch.setattr("korvet.shapes.monotonic", lambda: later)
    assert len(told((await fetch(broker, at, size=500_000)).records)) == 4
    assert max(read) <= 1_500_000  # of 4,000,000


UNEVEN = {
    "small before large": [[20] * 200] * 20 + [[300_000]] * 12,
    "large before small": [[300_000]] * 12 + [[20] * 200] * 20,
    "large among small": ([[50] * 200] * 4 + [[700_000]]) * 3,
    "once one large": [[900_000]] + [[20] * 200] * 20,
}


@shapes
@pytest.mark.parametrize("plan", UNEVEN.values(), ids=UNEVEN)
async def test_of_uneven_records_about_what_fits_is_read_and_answered(
    broker: Broker, form: str, mode: str, plan: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create("t", storage_format=form, offset_mode=mode)
    random, size = Random(7), 100_000
    there: list[tuple[int, int]] = []
    for sizes in plan:
        values = [random.randbytes(n) for n in sizes]
        base = (await produce(broker, packed(rows(*values), 13))).base_offset
        there += [(base + n, length + 30) for n, length in enumerate(sizes)]
    read, submit = [], broker.node.store.submit_command

    async def counted(*command: Any) -> Any:
        reply = await submit(*command)
        if command[0] == "XRANGE":
            read.append(sum(len(word) for _, fields in reply for word in fields))
        return reply

    monkeypatch.setattr(
        broker.node.store,
        "submit_command",
        lambda *command: asyncio.ensure_future(counted(*command)),
    )
    at = 0
    while at < len(there):
        read.clear()
        found = told((await fetch(broker, there[at][0], size=size)).records)
        got = [row[0] for row in found if row[0] >= there[at][0]]
        assert got == [offset for offset, _ in there[at : at + len(got)]]
        answered = sum(cost for _, cost in there[at : at + len(got)])
        # The next batch did not fit, or half of the bytes came, or as many records as ever do.
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
    topic = await broker.node.topics.get("t")
    assert topic is not None
    assert await Compaction(broker.node.store, broker.node.keys, topic, 0).run() is not None
    size = 28 if version < 2 else 36  # of one message: no second entry has room
    for offset in (first + 1, first + 2, second):
        answer = await fetch(broker, offset, version=version, size=size)
        assert answer.high_watermark == last + 1
        assert told(answer.records, version)[0][:3:2] == (second, b"b")


@pytest.mark.parametrize("version", range(2, 19))
@pytest.mark.parametrize("form", ["record", "batch"])
async def test_what_was_compressed_with_zstd_is_read_in_every_version(
    broker: Broker, form: str, version: int
) -> None:
    await broker.create("t", storage_format=form, offset_mode="dense", compression_type="zstd")
    sent = packed(rows(b"a" * 500, b"b" * 500, time=5), 13, codecs.ZSTD)
    assert (await produce(broker, sent)).error_code == E.NONE
    answer = await fetch(broker, 0, version=version)
    assert answer.error_code == E.NONE
    assert told(answer.records, version) == rows(b"a" * 500, b"b" * 500, time=5)


@pytest.mark.parametrize("codec", ["lz4", "zstd", "gzip", "snappy", "none"])
async def test_what_is_compressed_at_rest_counts_as_it_is_sent(
    broker: Broker, codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = [bytes([n]) * 50_000 for n in range(20)]
    await broker.create("t", offset_mode="dense", storage_compression=codec)
    assert (await produce(broker, packed(rows(*values), 13))).error_code == E.NONE
    asked: list[int] = []
    submit = broker.node.store.submit_command

    def counted(*command: Any) -> Any:
        if command[0] == "XRANGE":
            asked.append(command[-1])
        return submit(*command)

    monkeypatch.setattr(broker.node.store, "submit_command", counted)
    seen: list[bytes | None] = []
    while len(seen) < len(values):
        answer = await fetch(broker, len(seen), size=170_000)
        assert len(bytes(answer.records)) <= 170_000
        found = told(answer.records)
        assert len(found) == min(3, len(values) - len(seen))
        seen += [row[3] for row in found]
    assert seen == values
    assert max(asked) == 4  # of Redis, no more than about what fits


@pytest.mark.parametrize("also", [0, 200])
async def test_of_large_native_entries_no_more_are_read_than_about_what_fits(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, also: int
) -> None:
    await broker.create("t", offset_mode="dense")
    for _ in range(also):
        await produce(broker, packed(rows(b"small"), 13))
    stream, submit = broker.node.keys.partition("t", 0).stream, broker.node.store.submit_command
    for _ in range(40):
        await submit("XADD", stream, "*", "value", b"x" * 100_000)
    read: list[int] = []

    async def counted(*command: Any) -> Any:
        reply = await submit(*command)
        read.extend([len(reply)] if command[0] == "XRANGE" else [])
        return reply

    def submitted(*command: Any) -> Any:
        return asyncio.ensure_future(counted(*command))

    monkeypatch.setattr(broker.node.store, "submit_command", submitted)
    at = also
    while at < also + 40:
        at += len(told((await fetch(broker, at, size=500_000)).records))
    assert max(read[bool(also) :]) <= 8


async def test_a_fetch_goes_on_where_other_brokers_appended(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create("t", offset_mode="dense", storage_format="batch")
    topic = await broker.node.topics.get("t")
    assert topic is not None
    asked: list[Any] = []
    submit = broker.node.store.submit_command

    def counted(*command: Any) -> Any:
        asked.append(command[0])
        return submit(*command)

    async def elsewhere(value: bytes) -> None:
        call = prepare(
            broker.node.keys,
            topic,
            0,
            packed(rows(value), 13),
            version=13,
            now_ms=0,
            settings=broker.node.settings,
        )
        assert (await broker.node.store.run(call)).error == E.NONE

    await fetch(broker, 0)  # who reads a partition has it kept
    await produce(broker, packed(rows(b"a"), 13))
    await elsewhere(b"b")
    await produce(broker, packed(rows(b"c"), 13))
    monkeypatch.setattr(broker.node.store, "submit_command", counted)
    for reads in (1, 0):
        asked.clear()
        found = told((await fetch(broker, 0)).records)
        assert [row[3] for row in found] == [b"a", b"b", b"c"]
        assert asked.count("XRANGE") == reads
    one = len(packed(rows(b"a"), 13)) + 40
    asked.clear()
    assert len(told((await fetch(broker, 0, size=one)).records)) == 1
    assert asked.count("XRANGE") == 0


async def test_what_a_failover_lost_is_not_fetched(broker: Broker) -> None:
    """A replica takes over that has not seen the last append, and takes another in its place."""
    await broker.create("t", offset_mode="dense", storage_format="batch")
    topic = await broker.node.topics.get("t")
    assert topic is not None
    store, keys = broker.node.store, broker.node.keys.partition("t", 0)
    await fetch(broker, 0)  # who reads a partition has it kept
    await produce(broker, packed(rows(b"a"), 13))
    seen = {key: await store.command("DUMP", key) for key in (keys.log, keys.stream)}
    await produce(broker, packed(rows(b"lost"), 13))
    assert [row[3] for row in told((await fetch(broker, 0)).records)] == [b"a", b"lost"]
    for key, dumped in seen.items():
        await store.command("RESTORE", key, 0, dumped, "REPLACE")
    for lane in store._router.lanes():
        lane.renew("the server is gone")
    await store.ready()
    call = prepare(
        broker.node.keys,
        topic,
        0,
        packed(rows(b"b"), 13),
        version=13,
        now_ms=0,
        settings=broker.node.settings,
    )
    assert (await store.run(call)).base == 1
    assert [row[3] for row in told((await fetch(broker, 0)).records)] == [b"a", b"b"]
    assert [row[3] for row in told((await fetch(broker, 1)).records)] == [b"b"]


@pytest.mark.parametrize("mode", ["time", "dense"])
async def test_nobody_stands_behind_the_end_where_nothing_was_lost(
    broker: Broker, mode: str
) -> None:
    await broker.create("t", offset_mode=mode)
    base = (await produce(broker, packed(rows(b"a"), 13))).base_offset
    while int(now() * 1000) << 10 <= base + 5 and mode == "time":  # until the next millisecond
        await fetch(broker, 0)
    assert E((await fetch(broker, base + 5)).error_code) is E.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("mode", ["time", "dense"])
async def test_who_has_read_what_a_failover_lost_goes_on_in_time_mode(
    broker: Broker, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would begin at the first record there is, or at the end, as its reset policy says."""
    monkeypatch.setattr(broker.node.store, "is_promoted", lambda key: True)
    await broker.create("t", offset_mode=mode)
    await produce(broker, packed(rows(b"a"), 13))
    position = (await fetch(broker, 0)).high_watermark + 5
    answer = await fetch(broker, position)
    if mode == "dense":  # the next record would be taken for the one that was lost
        assert E(answer.error_code) is E.OFFSET_OUT_OF_RANGE
        return
    while answer.error_code:  # until the next millisecond
        answer = await fetch(broker, position)
    assert (E(answer.error_code), answer.high_watermark) == (E.NONE, position)
    assert not answer.records
    await produce(broker, packed(rows(b"b"), 13))
    assert [row[3] for row in told((await fetch(broker, position)).records)] == [b"b"]
    ahead = (int(now() * 1000) + 3_600_000) << 10
    assert E((await fetch(broker, ahead)).error_code) is E.OFFSET_OUT_OF_RANGE


async def test_a_fetch_that_a_broken_connection_ends_leaves_nothing_unheard(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """It asks two things at once; while Redis is away the log had three lines for each fetch."""
    await broker.create("t", offset_mode="dense")
    await produce(broker, packed(rows(b"a"), 13))
    await fetch(broker, 0)  # from now on both are asked at once
    for lane in broker.node.store._router.lanes():
        lane.leave("the server is gone")
    assert E((await fetch(broker, 0)).error_code) is E.KAFKA_STORAGE_ERROR
    gc.collect()
    assert not [row for row in caplog.records if row.name == "asyncio"]


async def test_a_fetch_goes_on_behind_entries_that_have_no_offset(broker: Broker) -> None:
    await broker.create("t")
    stream = broker.node.keys.partition("t", 0).stream
    for at in ("5-0", *(f"5-{2000 + n}" for n in range(20)), "6-0"):
        await broker.node.store.command("XADD", stream, at, "value", at)
    for offset in (5 << 10, (5 << 10) + 1):
        await fetch(broker, offset, size=1)
        found = told((await fetch(broker, offset, size=1)).records)
        assert [row[3] for row in found] == [b"6-0" if offset & 1 else b"5-0"]


async def test_a_fetch_goes_on_behind_ever_so_many_entries_that_are_no_batches(
    broker: Broker,
) -> None:
    """Of large batches a fetch asks for one at a time, and gets one of those, however small."""
    await broker.create("t", storage_format="batch", offset_mode="dense")
    await produce(broker, packed(rows(b"a" * 1000), 13))
    stream = broker.node.keys.partition("t", 0).stream
    adds = (broker.node.store.command("XADD", stream, "*", "value", "v") for _ in range(1500))
    await asyncio.gather(*adds)
    await produce(broker, packed(rows(b"b"), 13))
    await fetch(broker, 0, size=1)
    found = told((await fetch(broker, 1, size=1)).records)
    assert [row[3] for row in found] == [b"b"]


async def test_a_fetch_waits_for_the_next_record(broker: Broker) -> None:
    await broker.create("t", offset_mode="dense")
    waiting = asyncio.create_task(fetch(broker, 0, wait=600_000, least=1))
    await asyncio.sleep(0)
    await produce(broker, GOOD)
    async with asyncio.timeout(60):
        assert len(told((await waiting).records)) == 2


@pytest.mark.parametrize("form", ["record", "batch"])
@pytest.mark.parametrize("version", [2, 4, 18])
async def test_a_fetch_does_not_wait_where_more_is_there_than_it_takes(
    broker: Broker, form: str, version: int
) -> None:
    await broker.create("t", storage_format=form, offset_mode="dense")
    for _ in range(3):
        await produce(broker, packed(rows(*[bytes(100)] * 10), 13))
    # Two batches do not fit, and one is fewer bytes than are asked for.
    asked = fetch(broker, 0, version=version, wait=60_000, size=2000, least=2001)
    assert 1000 < len((await asyncio.wait_for(asked, 50)).records) <= 2000


async def test_a_fetch_waits_no_longer_than_it_says(broker: Broker) -> None:
    await broker.create("t")
    async with asyncio.timeout(60):
        assert not (await fetch(broker, 0, wait=20, least=1)).records


async def test_a_fetch_that_waits_looks_again_only_where_something_happened(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create("t", 5, storage_format="batch")
    topic = await broker.node.topics.get("t")
    assert topic is not None
    asked: list[str] = []
    looked = asyncio.Event()
    submit = broker.node.store.submit_command

    def counted(*command: Any) -> Any:
        if command[0] == "HMGET":
            asked.append(command[1])
        if len(asked) == 5:
            looked.set()
        return submit(*command)

    monkeypatch.setattr(broker.node.store, "submit_command", counted)
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
    assert len(asked) == 6 and asked[5] == broker.node.keys.partition("t", 3).log
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
    reads, submit = 0, broker.node.store.submit_command

    def counted(*command: Any) -> Any:
        nonlocal reads
        reads += command[0] == "XRANGE"
        return submit(*command)

    monkeypatch.setattr(broker.node.store, "submit_command", counted)
    monkeypatch.setattr(handlers_fetch, "NATIVE_RECHECK_S", 60)
    waiting = asyncio.create_task(fetch(broker, first, wait=60_000, least=least, size=1 << 20))
    for value in values[before:]:
        await produce(broker, packed(rows(value), 13))
    answer = await asyncio.wait_for(waiting, 60)
    assert len(answer.records) >= least
    found = [row[3] for row in told(answer.records)]
    assert found == [b"first", *values][: len(found)]
    assert reads <= 8


async def test_a_fetch_that_waits_for_many_bytes_asks_of_each_append_only_where_it_was(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    many, size = 100, 500
    await broker.create("t", many, storage_format="batch", offset_mode="dense")
    topic = await broker.node.topics.get("t")
    assert topic is not None
    places = [
        FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=1 << 20)
        for n in range(many)
    ]
    row = FetchTopic(topic="t", topic_id=topic.uuid, partitions=places)
    request = FetchRequest(
        max_wait_ms=60_000, min_bytes=2 * many * size, max_bytes=1 << 20, topics=[row]
    )
    asked, submit = 0, broker.node.store.submit_command

    def counted(*command: Any) -> Any:
        nonlocal asked
        asked += command[0] == "HMGET"
        return submit(*command)

    monkeypatch.setattr(broker.node.store, "submit_command", counted)
    waiting = asyncio.create_task(broker.ask(request))
    for at in range(3 * many):
        await produce(broker, packed(rows(bytes(size)), 13), number=at % many)
    answer = await asyncio.wait_for(waiting, 60)
    found = answer.responses[0].partitions
    assert sum(len(place.records or b"") for place in found) >= 2 * many * size
    assert asked <= many + 3 * many + many  # at first, at each append, and in the end


@shapes
@pytest.mark.parametrize("most", [200_000, 1 << 20], ids=["of a partition", "of all"])
async def test_a_fetch_that_waits_for_more_than_fits_answers_what_fits(
    broker: Broker, form: str, mode: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create("t", storage_format=form, offset_mode=mode)
    topic = await broker.node.topics.get("t")
    assert topic is not None
    first = (await produce(broker, packed(rows(b"first"), 13))).base_offset
    monkeypatch.setattr(handlers_fetch, "NATIVE_RECHECK_S", 60)
    place = FetchPartition(partition=0, fetch_offset=first, partition_max_bytes=most)
    row = FetchTopic(topic="t", topic_id=topic.uuid, partitions=[place])
    request = FetchRequest(max_wait_ms=60_000, min_bytes=1 << 20, max_bytes=200_000, topics=[row])
    waiting = asyncio.create_task(broker.ask(request))
    for _ in range(8):
        await produce(broker, packed(rows(bytes(50_000)), 13))
    answer = await asyncio.wait_for(waiting, 50)
    found = told(answer.responses[0].partitions[0].records)
    assert [len(row[3] or b"") for row in found] == [5, 50_000, 50_000, 50_000]


@pytest.mark.parametrize("size", [100, 1000])
async def test_who_reads_records_as_they_come_asks_for_them_with_the_state(
    broker: Broker, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create("t", storage_format="record", offset_mode="dense")
    data, clock = packed(rows(*[bytes(size)] * 50), 13), 0.0
    monkeypatch.setattr("korvet.shapes.monotonic", lambda: clock)
    for _ in range(10):
        at = (await produce(broker, data)).base_offset + 50
    await fetch(broker, at)
    asked: list[str] = []
    submit = broker.node.store.submit_command

    def counted(*command: Any) -> Any:
        asked.append(command[0])
        return submit(*command)

    monkeypatch.setattr(broker.node.store, "submit_command", counted)
    for _ in range(3):
        await produce(broker, data)
        asked.clear()
        found = told((await fetch(broker, at)).records)
        assert [row[0] for row in found] == list(range(at, at + 50))
        assert asked == ["HMGET", "XRANGE"]
        at += 50


@shapes
async def test_a_fetch_that_waits_where_the_log_was_trimmed_is_told_at_the_next_append(
    broker: Broker, form: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create("t", storage_format=form, offset_mode=mode)
    topic = await broker.node.topics.get("t")
    assert topic is not None
    monkeypatch.setattr(handlers_fetch, "NATIVE_RECHECK_S", 60)
    first = (await produce(broker, packed(rows(bytes(80_000)), 13))).base_offset
    waits = asyncio.Event()
    monkeypatch.setattr(handlers_fetch, "shed", lambda wanted: waits.set())
    waiting = asyncio.create_task(fetch(broker, first, wait=60_000, least=100_000))
    await waits.wait()
    trimmed = log.truncate(broker.node.keys, "t", 0, topic_id=topic.id, before=-1)
    assert (await broker.node.store.run(trimmed)).error == E.NONE
    await produce(broker, packed(rows(b"after"), 13))
    assert (await asyncio.wait_for(waiting, 50)).error_code == E.OFFSET_OUT_OF_RANGE


@shapes
async def test_a_fetch_whose_time_is_up_answers_what_came_while_it_waited(
    broker: Broker, form: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create("t", storage_format=form, offset_mode=mode)
    first = (await produce(broker, packed(rows(bytes(50_000)), 13))).base_offset
    shed: list[int] = []
    waits = asyncio.Event()

    def dropped(wanted: list[Wanted]) -> bool:
        waits.set()
        found = fetching.shed(wanted)
        shed.append(sum(len(row.answer.records or ()) for row in wanted if row.answer))
        return found

    monkeypatch.setattr(handlers_fetch, "shed", dropped)
    monkeypatch.setattr(handlers_fetch, "NATIVE_RECHECK_S", 60)
    clock = 0.0
    monkeypatch.setattr(handlers_fetch, "monotonic", lambda: clock)
    for several in (1, 2):
        waits.clear()
        waiting = asyncio.create_task(fetch(broker, first, wait=50_000, least=1 << 20))
        await waits.wait()
        clock += 50
        await produce(broker, packed(rows(bytes(50_000)), 13))
        assert len(told((await waiting).records)) == several + 1
    assert shed[-1] == 0, "nothing of so many bytes is kept meanwhile"


async def test_a_fetch_session_nobody_opened_is_unknown(broker: Broker) -> None:
    request = FetchRequest(max_wait_ms=0, min_bytes=0, session_id=7, session_epoch=3, topics=[])
    answer = await broker.ask(request)
    assert answer.error_code == E.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("seed", range(4))
async def test_any_walk_over_a_log_sees_every_record_once(broker: Broker, seed: int) -> None:
    """Batches of any size, fetched in bites of any size: nothing twice, nothing missed."""
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
        got = [(row[0], row[3]) for row in told(answer.records) if row[0] >= position]
        assert got, position
        found += got
        position = got[-1][0] + 1
    assert found == expected


@pytest.mark.parametrize("version", range(3, 14))
async def test_who_produces_by_name_to_a_topic_that_was_made_again_is_not_told_of_ids(
    broker: Broker, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create("t")
    old = await broker.made_again("t")
    data = packed(rows(b"v"), version)
    with monkeypatch.context() as late:  # the word of it has not come to this broker yet
        late.setattr(broker.node.topics, "peek", lambda _: old)
        late.setattr(broker.node.topics, "peek_id", lambda _: old)
        answer = await produce(broker, data, version=version)
    known = E.UNKNOWN_TOPIC_ID if version >= 13 else E.UNKNOWN_TOPIC_OR_PARTITION
    assert answer.error_code == known
    assert (await produce(broker, data, version=version)).error_code == E.NONE
