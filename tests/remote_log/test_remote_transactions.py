"""Check transactions in segments: a read_committed consumer skips exactly the aborted ones."""

from typing import Any

import pytest

from korvet.wire import records
from korvet.wire.messages.end_txn import EndTxnRequest
from korvet.wire.messages.init_producer_id import InitProducerIdRequest
from korvet.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.remote_log.test_tiered_log import Tier, tier
from tests.support.exchanges import SHAPES, fetch, packed
from tests.support.wire_client import batches_in

__all__ = ["tier"]
pytestmark = pytest.mark.anyio
ROUNDS = 12


class Writer:
    """A transactional producer; each transaction has a new epoch (KIP-890)."""

    def __init__(self, tier: Tier, name: str) -> None:
        self.tier = tier
        self.name = name
        self.producer = (-1, -1)

    async def begin(self) -> None:
        request = InitProducerIdRequest(
            transactional_id=self.name,
            transaction_timeout_ms=60_000,
            producer_id=-1,
            producer_epoch=-1,
        )
        answer = await self.tier.broker.ask(request)
        self.producer = (answer.producer_id, answer.producer_epoch)

    async def send(self, value: bytes, sequence: int) -> None:
        topic = await self.tier.broker.services.topics.get("t")
        assert topic is not None
        data = packed(
            [(0, 1000, b"k", value, [])],
            13,
            transactional=True,
            producer=(*self.producer, sequence),
        )
        part = PartitionProduceData(index=0, records=data)
        row = TopicProduceData(name="t", topic_id=topic.uuid, partition_data=[part])
        request = ProduceRequest(
            transactional_id=self.name, acks=-1, timeout_ms=1000, topic_data=[row]
        )
        answer = await self.tier.broker.ask(request)
        assert answer.responses[0].partition_responses[0].error_code == 0

    async def end(self, committed: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            committed=committed,
        )
        answer = await self.tier.broker.ask(request)
        assert answer.error_code == 0
        self.producer = (answer.producer_id, answer.producer_epoch)


async def read_committed(tier: Tier) -> list[bytes]:
    """Return the first bytes of the values that a consumer keeps, as Kafka's clients do."""
    found: list[bytes] = []
    offset = (await tier.offset(-2)).offset
    while True:
        answer: Any = await fetch(tier.broker, offset, size=20_000, committed=True)
        assert answer.error_code == 0
        aborts = {(row.producer_id, row.first_offset) for row in answer.aborted_transactions or ()}
        data = answer.records or b""
        blob = b"".join(map(bytes, data)) if isinstance(data, list) else bytes(data)
        after = offset
        aborted: set[int] = set()
        for batch in batches_in(blob):
            header = records.read_header(batch)
            last = header.base_offset + header.last_offset_delta
            aborted |= {who for who, first in aborts if first <= last}
            if header.attributes & records.CONTROL:
                aborts = {row for row in aborts if row[0] != header.producer_id or row[1] > last}
                aborted.discard(header.producer_id)
            elif header.producer_id not in aborted:
                kept = [row for row in records.records_of(batch) if row[0] >= offset]
                found += [(row[3] or b"")[:6] for row in kept]
            after = last + 1
        if after == offset:
            return found
        offset = after


@pytest.mark.parametrize(("form", "mode"), SHAPES)
async def test_aborted_transactions_in_segments_are_skipped(
    tier: Tier, form: str, mode: str
) -> None:
    await tier.broker.create(
        "t",
        partitions=1,
        storage_format=form,
        offset_mode=mode,
        remote_storage_enable="true",
        segment_bytes="15000",
        retention_ms="-1",
        local_retention_bytes="1",
    )
    one, two = Writer(tier, "one"), Writer(tier, "two")
    await one.begin()
    await two.begin()
    expected: list[bytes] = []
    for turn in range(ROUNDS):
        for number in range(3):
            for writer in (one, two):
                value = f"{writer.name[0]}{turn:02}-{number} ".encode()
                await writer.send(value * 400, number)
                if turn % (2 if writer is one else 3):
                    expected.append(value[:6])
        await one.end(turn % 2 > 0)
        await two.end(turn % 3 > 0)
    hot = await read_committed(tier)
    assert sorted(hot) == sorted(expected)
    await tier.move()
    assert len(tier.objects()) > 3
    assert (await tier.offset(-4)).offset > (await tier.offset(-2)).offset
    assert await read_committed(tier) == hot
