"""Produce of records that a topic refuses, single ones or all of a batch."""

from typing import Any

from korvet.wire import batch_builder
from korvet.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.conformance.asking import COMPACTED, PRODUCED, Ask, case

SINCE = 3
LONG_AGO, FAR_OFF = 1_700_000_000_000, 4_000_000_000_000
LZ4 = 3


async def answered(
    ask: Ask, topic: str, rows: list[tuple[int, bytes | None]], codec: int = 0
) -> Any:
    """Produce a batch of these timestamps and keys. Returns the response without offsets."""
    data = batch_builder.build(
        [(at, time, key, b"v", []) for at, (time, key) in enumerate(rows)], codec=codec
    )
    sent = TopicProduceData(
        name=topic,
        topic_id=await ask.topic_id(topic),
        partition_data=[PartitionProduceData(index=0, records=bytes(data))],
    )
    answer = await ask(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[sent]))
    row = answer.responses[0].partition_responses[0]
    return [row.error_code, row.base_offset >= 0, row.error_message is not None, row.record_errors]


@case("Produce", since=SINCE)
async def records_without_keys_in_a_compacted_topic(ask: Ask) -> Any:
    rows = [(LONG_AGO, key) for key in (b"a", None, b"b", None)]
    return [await answered(ask, COMPACTED, rows, codec) for codec in (0, LZ4)]


@case("Produce", since=SINCE)
async def records_from_the_future(ask: Ask) -> Any:
    rows: list[tuple[int, bytes | None]] = [(LONG_AGO, b"a"), (FAR_OFF, b"b"), (LONG_AGO, b"c")]
    return [await answered(ask, PRODUCED, rows, codec) for codec in (0, LZ4)]


@case("Produce", since=SINCE)
async def records_that_lack_keys_or_come_from_the_future(ask: Ask) -> Any:
    rows = [(LONG_AGO, None), (FAR_OFF, b"b"), (FAR_OFF, None), (LONG_AGO, b"c")]
    return await answered(ask, COMPACTED, rows)
