"""Check Produce by a producer unknown to the partition (KIP-360): batches stay in order."""

import asyncio
from collections.abc import Awaitable
from typing import Any
from uuid import uuid4

import pytest
from msgspec.structs import replace

from korvet.base.errors import ErrorCode as E
from korvet.broker.network.request_decoder import PRODUCE
from korvet.context import Context
from korvet.handlers.produce import produce
from korvet.produce import unknown_producers
from korvet.scripts.append_call import EXPIRED, EXPIRED_IN_TXN, TRANSACTION_AT
from korvet.scripts.call import Call
from korvet.scripts.calls.partition import APPEND
from korvet.security.session import Session
from korvet.store.calls import ReplyWaiter
from korvet.store.errors import StoreRefused
from korvet.topics.table import Topic
from korvet.wire import batch_builder
from korvet.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from korvet.wire.messages.init_producer_id import InitProducerIdRequest
from korvet.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from korvet.wire.structs import NamedPartitions
from tests.support.connected_broker import Broker
from tests.support.exchanges import fetch, rows_in


def batch(number: int, size: int = 10, epoch: int = 0, first: int = 0) -> bytes:
    """Return the producer's batch of that number, with one record."""
    row = (0, 0, None, b"%d" % number * size, [])
    return bytes(batch_builder.build([row], producer=(5, epoch, first + number)))


def asking(topic: Topic | None, data: bytes, index: int = 0) -> ProduceRequest:
    row = TopicProduceData(
        name="t",
        topic_id=topic.uuid if topic else uuid4(),
        partition_data=[PartitionProduceData(index=index, records=data)],
    )
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[row])


def begun(broker: Broker, data: bytes, topic: Topic) -> Awaitable[Any]:
    """Send a batch; return the response to await."""
    return produce(
        asking(topic, data), Context(broker.services, PRODUCE, 13, "test", Session("127.0.0.1"))
    )


async def sent(broker: Broker, data: bytes, version: int, index: int) -> PartitionProduceResponse:
    topic = await broker.services.topics.get("t")
    answer = await broker.ask(asking(topic, data, index), version)
    found: PartitionProduceResponse = answer.responses[0].partition_responses[0]
    return found


async def errors(broker: Broker, *batches: bytes, version: int = 13, index: int = 0) -> list[int]:
    """Return the errors of batches that are in flight together."""
    asked = [sent(broker, data, version, index) for data in batches]
    return [row.error_code for row in await asyncio.gather(*asked)]


async def values(broker: Broker, index: int = 0) -> list[bytes]:
    """Return the first byte of each record, in order."""
    found = await fetch(broker, 0, number=index)
    return [(row[3] or b"")[:1] for row in rows_in(found.records)]


def refusing(broker: Broker, monkeypatch: pytest.MonkeyPatch, transaction: int = -1) -> None:
    """Make Redis reject the next append with that `transaction` argument, and none after it."""
    send, left = broker.services.store.send, [StoreRefused("OOM command not allowed")]

    def refuse(call: Call[Any], waiter: ReplyWaiter[Any]) -> None:
        if left and call.script is APPEND and call.args[TRANSACTION_AT] == transaction:
            waiter.set_exception(left.pop())
        else:
            send(call, waiter)

    monkeypatch.setattr(broker.services.store, "send", refuse)


@pytest.mark.parametrize("version", [12, 13])
async def test_no_batch_is_stored_before_the_first_one_that_redis_rejected(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    await broker.create("t", offset_mode="dense")
    three = [batch(number, 40_000) for number in range(3)]
    refusing(broker, monkeypatch)
    late = [E.KAFKA_STORAGE_ERROR] * 2
    assert await errors(broker, *three, version=version) == [E.KAFKA_STORAGE_ERROR, *late]
    # The producer retries the rejected batches in order, and continues.
    assert await errors(broker, three[1], version=version) == late[:1]
    assert await errors(broker, *three, version=version) == [0, 0, 0]
    assert await errors(broker, *map(batch, range(3, 9))) == [0] * 6
    assert await values(broker) == [b"%d" % n for n in range(9)]
    assert not broker.services.produce.unknown_producers


async def test_a_batch_in_flight_with_one_that_failed_is_repeated_and_no_gap(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a gap librdkafka sends all that is not acknowledged again, of a new epoch."""
    await broker.create("t", offset_mode="dense")
    assert await errors(broker, batch(0)) == [0]
    refusing(broker, monkeypatch)
    both = [batch(number, 40_000) for number in (1, 2)]
    assert await errors(broker, *both) == [E.KAFKA_STORAGE_ERROR] * 2
    monkeypatch.setattr(unknown_producers, "IN_FLIGHT_S", 0.0)
    assert await errors(broker, both[1]) == [E.OUT_OF_ORDER_SEQUENCE_NUMBER]
    assert await errors(broker, *both) == [0, 0]
    assert await errors(broker, batch(9)) == [E.OUT_OF_ORDER_SEQUENCE_NUMBER]


@pytest.mark.parametrize("size", [10, 40_000], ids=["batched", "alone"])
async def test_an_expired_producer_continues_in_order(broker: Broker, size: int) -> None:
    await broker.create("t", offset_mode="dense")
    assert await errors(broker, *(batch(n, size, first=70) for n in range(5))) == [0] * 5
    assert await values(broker) == [b"%d" % n for n in range(5)]
    assert not broker.services.produce.unknown_producers


async def test_an_expired_producer_continues_in_order_when_redis_rejects_a_batch(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create("t", offset_mode="dense")
    three = [batch(number, 40_000, first=70) for number in range(3)]
    refusing(broker, monkeypatch, EXPIRED)
    late = [E.KAFKA_STORAGE_ERROR] * 2
    assert await errors(broker, *three) == [E.KAFKA_STORAGE_ERROR, *late]
    assert await errors(broker, *three) == [0, 0, 0]
    assert await values(broker) == [b"0", b"1", b"2"]


async def test_an_expired_producer_continues_in_its_next_transaction_in_order(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create("t", offset_mode="dense")
    began = await broker.ask(
        InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000)
    )
    who = {"v3_and_below_producer_id": began.producer_id, "v3_and_below_producer_epoch": 0}
    place = [NamedPartitions(name="t", partitions=[0])]
    joining = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="tx", v3_and_below_topics=place, **who
    )
    await broker.ask(joining, 3)

    async def errors(*batches: bytes) -> list[int]:
        asked = [
            broker.ask(replace(asking(None, data), transactional_id="tx"), 11) for data in batches
        ]
        answers = await asyncio.gather(*asked)
        return [answer.responses[0].partition_responses[0].error_code for answer in answers]

    three = [
        bytes(
            batch_builder.build(
                [(0, 0, None, b"%d" % number * 40_000, [])],
                transactional=True,
                producer=(began.producer_id, 0, 70 + number),
            )
        )
        for number in range(3)
    ]
    refusing(broker, monkeypatch, EXPIRED_IN_TXN)
    late = [E.KAFKA_STORAGE_ERROR] * 2
    assert await errors(*three) == [E.KAFKA_STORAGE_ERROR, *late]
    assert await errors(*three[1:]) == late
    assert await errors(*three) == [0, 0, 0]
    assert await values(broker) == [b"0", b"1", b"2"]
    assert not broker.services.produce.unknown_producers


async def test_no_batch_is_stored_before_the_first_one_that_the_broker_rejected(
    broker: Broker,
) -> None:
    await broker.create("t", partitions=2, offset_mode="dense")
    assert await errors(broker, batch(0), index=2) == [E.UNKNOWN_TOPIC_OR_PARTITION]
    assert await errors(broker, batch(1), index=1) == [0], "another partition has its own state"
    broken = batch(0)[:-1] + b"x"
    assert await errors(broker, broken) == [E.CORRUPT_MESSAGE]
    assert await errors(broker, batch(1)) == [E.KAFKA_STORAGE_ERROR]
    assert await errors(broker, batch(1, epoch=1)) == [0], "another epoch is another producer"
    assert await errors(broker, batch(0)) == [E.INVALID_PRODUCER_EPOCH]


async def test_a_batch_rejected_for_good_is_not_waited_for(broker: Broker) -> None:
    await broker.create("t", offset_mode="dense", **{"cleanup.policy": "compact"})
    assert await errors(broker, batch(0)) == [E.INVALID_RECORD]
    row = (0, 0, b"k", b"v", [])
    data = bytes(batch_builder.build([row], producer=(5, 0, 1)))
    assert await errors(broker, data) == [0]


async def test_an_expired_producer_continues_in_order_when_a_batch_is_sent_meanwhile(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create("t", offset_mode="dense")
    send, late, asked = broker.services.store.send, [batch(3, 40_000, first=70)], []

    def overtaken(call: Call[Any], waiter: ReplyWaiter[Any]) -> None:
        """Send the last batch after the first was retried, and before the second is."""
        send(call, waiter)
        if late and call.script is APPEND and call.args[TRANSACTION_AT] == EXPIRED:
            asked.append(begun(broker, late.pop(), topic))

    topic = await broker.services.topics.get("t")
    assert topic is not None
    monkeypatch.setattr(broker.services.store, "send", overtaken)
    assert await errors(broker, *(batch(n, 40_000, first=70) for n in range(3))) == [0] * 3
    answer = await asked[0]
    assert answer.responses[0].partition_responses[0].error_code == 0
    assert await values(broker) == [b"%d" % n for n in range(4)]
    assert await errors(broker, batch(9, first=70)) == [E.OUT_OF_ORDER_SEQUENCE_NUMBER]
    assert not broker.services.produce.unknown_producers
