"""Partitions join their transaction by being produced to, and are told of its end."""

from korvet.wire.messages.end_txn import EndTxnRequest
from korvet.wire.messages.init_producer_id import InitProducerIdRequest
from korvet.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.handlers.conftest import Broker
from tests.handlers.exchanges import fetch, packed, rows


async def test_what_a_failover_forgot_of_a_transaction_joins_it_again(broker: Broker) -> None:
    await broker.create("t", offset_mode="dense")
    node, topic = broker.node, await broker.node.topics.get("t")
    assert topic is not None
    asked = InitProducerIdRequest(
        transactional_id="x", transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
    )
    told = await broker.ask(asked)
    who = (told.producer_id, told.producer_epoch)

    async def produced(number: int) -> int:
        data = packed(rows(b"a"), 13, transactional=True, producer=(*who, 0))
        part = PartitionProduceData(index=number, records=data)
        row = TopicProduceData(name="t", topic_id=topic.uuid, partition_data=[part])
        request = ProduceRequest(transactional_id="x", acks=-1, timeout_ms=1000, topic_data=[row])
        answer = await broker.ask(request)
        code: int = answer.responses[0].partition_responses[0].error_code
        return code

    assert await produced(1) == 0
    part, id_keys = node.keys.partition("t", 0), node.keys.transaction("x")
    replica = await broker.kept(
        part.log,
        part.stream,
        part.producers,
        part.open,
        id_keys.transaction,
        id_keys.participants,
    )
    assert await produced(0) == 0
    await broker.fails_over(replica)
    assert await produced(0) == 0
    ended = EndTxnRequest(
        transactional_id="x", producer_id=who[0], producer_epoch=who[1], committed=True
    )
    assert (await broker.ask(ended)).error_code == 0
    found = await fetch(broker, 0)
    assert (found.high_watermark, found.last_stable_offset) == (2, 2), "the record and its marker"
