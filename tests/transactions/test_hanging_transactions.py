"""Check hanging transactions, and partitions that join a transaction by Produce requests."""

from typing import Any

import pytest

from korvet.base.errors import ErrorCode as E
from korvet.security.session import Session
from korvet.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from korvet.wire.messages.end_txn import EndTxnRequest
from korvet.wire.messages.init_producer_id import InitProducerIdRequest
from korvet.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from korvet.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from korvet.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.support.connected_broker import Broker
from tests.support.exchanges import fetch, note_read, packed, produce, rows, rows_in, shapes

DAY_MS = 86_400_000


async def pending(broker: Broker, group: str) -> tuple[int, int]:
    """Leave offset 7 of t-0 pending in the group. Returns producer id and epoch of `tx`."""
    await broker.create("t", partitions=1)
    began = await broker.ask(
        InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000)
    )
    row = TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=7, committed_metadata=""
    )
    answer = await broker.ask(
        TxnOffsetCommitRequest(
            transactional_id="tx",
            group_id=group,
            producer_id=began.producer_id,
            producer_epoch=began.producer_epoch,
            topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[row])],
        ),
        5,
    )
    assert answer.topics[0].partitions[0].error_code == E.NONE
    return began.producer_id, began.producer_epoch


async def aged(broker: Broker, group: str, producer_id: int, by_ms: int) -> None:
    """Make the pending offsets older by `by_ms`."""
    key = broker.services.keys.group(group).txn_offsets
    text = await broker.services.store.command("HGET", key, producer_id)
    number, epoch, is_open, since, count = map(int, text.split())
    row = f"{number} {epoch} {is_open} {since - by_ms} {count}"
    await broker.services.store.command("HSET", key, producer_id, row)
    broker.services.hanging_transactions.next_checks.clear()


async def fetched(broker: Broker, group: str) -> tuple[str, int]:
    """Return error and offset of an OffsetFetch of t-0 that requires a stable offset."""
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    asked = OffsetFetchRequestGroup(group_id=group, topics=topics)
    answer = await broker.ask(OffsetFetchRequest(groups=[asked], require_stable=True), 9)
    (row,) = answer.groups[0].topics[0].partitions
    return E(row.error_code).name, row.committed_offset


@pytest.mark.parametrize("group", ["g", "a:group {ü}"])
async def test_pending_offsets_of_lost_transactions_are_removed(broker: Broker, group: str) -> None:
    producer_id, _ = await pending(broker, group)
    key = broker.services.keys.transaction("tx")
    await broker.services.store.command("UNLINK", key.transaction)
    assert await fetched(broker, group) == ("UNSTABLE_OFFSET_COMMIT", -1)
    await aged(broker, group, producer_id, 60_000)
    assert await fetched(broker, group) == ("UNSTABLE_OFFSET_COMMIT", -1), "it may still end"
    await aged(broker, group, producer_id, DAY_MS)
    assert await fetched(broker, group) == ("NONE", -1)


@pytest.mark.parametrize("group", ["g", "a:group {ü}"])
async def test_offsets_that_will_be_committed_wait_however_long(broker: Broker, group: str) -> None:
    producer_id, epoch = await pending(broker, group)
    await aged(broker, group, producer_id, DAY_MS)
    assert await fetched(broker, group) == ("UNSTABLE_OFFSET_COMMIT", -1)
    ended = await broker.ask(
        EndTxnRequest(
            transactional_id="tx", producer_id=producer_id, producer_epoch=epoch, committed=True
        )
    )
    assert ended.error_code == E.NONE
    assert await fetched(broker, group) == ("NONE", 7)


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


async def test_a_late_end_of_a_transaction_with_offsets_only_is_refused(broker: Broker) -> None:
    """EndTxn below 5 names no transaction: the connection notes to which it added the group."""
    producer_id, epoch = await begun(broker)
    who: dict[str, Any] = {
        "transactional_id": "x",
        "producer_id": producer_id,
        "producer_epoch": epoch,
    }
    add = AddOffsetsToTxnRequest(**who, group_id="g")
    end = EndTxnRequest(**who, committed=True)
    late, prompt = Session("127.0.0.1"), Session("127.0.0.1")
    steps = ((add, late), (end, prompt), (add, prompt), (end, late), (end, prompt))
    answers = [(await broker.ask(asked, 3, session=session)).error_code for asked, session in steps]
    assert answers == [E.NONE, E.NONE, E.NONE, E.NOT_COORDINATOR, E.NONE]
