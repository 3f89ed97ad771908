"""Check that partitions join a transaction by Produce requests, and get its end marker."""

from typing import Any

import pytest

from korvet.wire.messages.end_txn import EndTxnRequest
from korvet.wire.messages.init_producer_id import InitProducerIdRequest
from korvet.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.connected_broker import Broker
from tests.support.exchanges import fetch, note_read, packed, produce, rows, rows_in, shapes


async def begun(broker: Broker) -> tuple[int, int]:
    """Get the producer id and epoch of transactional id `x`."""
    asked = InitProducerIdRequest(
        transactional_id="x", transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
    )
    answer = await broker.ask(asked)
    return answer.producer_id, answer.producer_epoch


async def added(broker: Broker, who: tuple[int, int], number: int = 0) -> Any:
    """Produce one record of the transaction; return the partition's response."""
    topic = await broker.services.topics.get("t")
    assert topic is not None
    data = packed(rows(b"a"), 13, transactional=True, producer=(*who, 0))
    part = PartitionProduceData(index=number, records=data)
    row = TopicProduceData(name="t", topic_id=topic.uuid, partition_data=[part])
    request = ProduceRequest(transactional_id="x", acks=-1, timeout_ms=1000, topic_data=[row])
    answer = (await broker.ask(request)).responses[0].partition_responses[0]
    assert answer.error_code == 0
    return answer


async def ended(broker: Broker, who: tuple[int, int]) -> None:
    """Commit the transaction."""
    asked = EndTxnRequest(
        transactional_id="x", producer_id=who[0], producer_epoch=who[1], committed=True
    )
    assert (await broker.ask(asked)).error_code == 0


async def test_a_partition_that_a_failover_lost_joins_its_transaction_again(broker: Broker) -> None:
    await broker.create("t", offset_mode="dense")
    node, who = broker.services, await begun(broker)
    await added(broker, who, 1)
    part, id_keys = node.keys.partition("t", 0), node.keys.transaction("x")
    replica = await broker.kept(
        part.log,
        part.stream,
        part.producers,
        part.open_txns,
        id_keys.transaction,
        id_keys.participants,
    )
    await added(broker, who)
    await broker.fails_over(replica)
    await added(broker, who)
    await ended(broker, who)
    found = await fetch(broker, 0)
    assert (found.high_watermark, found.last_stable_offset) == (2, 2), "the record and its marker"


@shapes
async def test_a_fetch_at_the_last_stable_offset_reads_nothing_from_redis(
    broker: Broker, form: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create("t", storage_format=form, offset_mode=mode)
    who = await begun(broker)
    first = (await added(broker, who)).base_offset
    assert not (await fetch(broker, first, committed=True)).records
    read = note_read(broker, monkeypatch)
    for _ in range(3):
        await produce(broker, packed(rows(bytes(5000)), 13))
        found = await fetch(broker, first, committed=True)
        assert not found.records and found.last_stable_offset <= first < found.high_watermark
    assert not read
    await ended(broker, who)
    found = rows_in((await fetch(broker, first, committed=True)).records)
    assert [len(row[3] or b"") for row in found[:4]] == [1, 5000, 5000, 5000]
