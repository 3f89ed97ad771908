"""Check that WriteTxnMarkers ends hanging transactions of a partition, and nothing else."""

import pytest

from korvet.base.errors import ErrorCode as E
from korvet.scripts.calls.transaction import DescribeReply
from korvet.transactions.coordinator import EXPIRE_BATCH
from korvet.wire.messages.describe_producers import DescribeProducersRequest
from korvet.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from korvet.wire.messages.write_txn_markers import WritableTxnMarker, WriteTxnMarkersRequest
from korvet.wire.structs import PartitionIndexes
from tests.support.connected_broker import Broker
from tests.transactions.test_coordinator import opened


async def marked(
    broker: Broker,
    producer_id: int,
    epoch: int = 0,
    *places: tuple[str, int],
    committed: bool = False,
    version: int = 2,
    coordinator: int = 0,
    transaction_version: int = 0,
) -> list[str]:
    """Send a marker to these partitions, by default t-0; return the error names."""
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=committed,
        topics=[
            PartitionIndexes(name=name, partition_indexes=[number])
            for name, number in places or [("t", 0)]
        ],
        coordinator_epoch=coordinator,
        transaction_version=transaction_version,
    )
    answer = await broker.ask(WriteTxnMarkersRequest(markers=[marker]), version)
    (reported,) = answer.markers
    assert reported.producer_id == producer_id
    return [E(row.error_code).name for topic in reported.topics for row in topic.partitions]


async def producers(broker: Broker) -> list[tuple[int, int]]:
    """Return the producers of t-0, and the start of each open transaction."""
    request = DescribeProducersRequest(topics=[PartitionIndexes(name="t", partition_indexes=[0])])
    (row,) = (await broker.ask(request)).topics[0].partitions
    return [(each.producer_id, each.current_txn_start_offset) for each in row.active_producers]


async def end(broker: Broker, isolation_level: int = 0) -> int:
    """Return the end of t-0 for an isolation level."""
    asked = ListOffsetsTopic(
        name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)]
    )
    request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=[asked])
    found: int = (await broker.ask(request, 7)).topics[0].partitions[0].offset
    return found


async def lost(broker: Broker, transactional_id: str) -> None:
    """Remove the state of a transactional id from Redis, but not from the partitions."""
    key = broker.services.keys.transaction(transactional_id)
    await broker.services.store.command("UNLINK", key.transaction)


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize("committed", [False, True])
async def test_a_transaction_of_a_lost_id_is_found_and_ended(
    broker: Broker, version: int, committed: bool
) -> None:
    await broker.create("t", partitions=1, offset_mode="dense")
    who, _ = await opened(broker, "tx", "t", 0)
    await lost(broker, "tx")
    assert await producers(broker) == [(who, 0)]
    assert (await end(broker), await end(broker, 1)) == (1, 0)
    assert await marked(broker, who, committed=committed, version=version) == ["NONE"]
    assert await producers(broker) == [(who, -1)]
    assert (await end(broker), await end(broker, 1)) == (2, 2)
    assert await marked(broker, who, committed=committed, version=version) == ["NONE"]
    assert await end(broker) == 2, "nothing is ended twice"


async def test_a_transaction_that_will_be_ended_is_left_alone(broker: Broker) -> None:
    await broker.create("t", partitions=1, offset_mode="dense")
    who, epoch = await opened(broker, "tx", "t", 0)
    assert await marked(broker, who) == ["INVALID_TXN_STATE"]
    assert (await end(broker), await end(broker, 1)) == (1, 0)
    ended = await broker.services.transactions.end(
        "tx", producer_id=who, producer_epoch=epoch, committed=True, bump=False
    )
    assert (ended.error, await end(broker, 1)) == (0, 2)


async def test_a_lost_transaction_is_ended_though_the_ids_next_one_is_open(
    broker: Broker,
) -> None:
    await broker.create("t", partitions=1, offset_mode="dense")
    await broker.create("other", partitions=1)
    who, _ = await opened(broker, "tx", "t", 0)
    key = broker.services.keys.transaction("tx")
    await broker.services.store.command("HSET", key.transaction, "round", 2)
    assert await marked(broker, who) == ["NONE"], "another transaction number"
    assert await end(broker, 1) == 2


async def test_old_producers_and_coordinators_are_refused(broker: Broker) -> None:
    await broker.create("t", partitions=1)
    who, _ = await opened(broker, "tx", "t", 0)
    await lost(broker, "tx")
    assert await marked(broker, who, -1) == ["INVALID_PRODUCER_EPOCH"]
    assert await marked(broker, who, 0, transaction_version=2) == ["INVALID_PRODUCER_EPOCH"]
    assert await marked(broker, who, 3, transaction_version=2) == ["NONE"]
    assert await marked(broker, who, 2) == ["INVALID_PRODUCER_EPOCH"]
    assert await marked(broker, who, 3, coordinator=-1) == ["TRANSACTION_COORDINATOR_FENCED"]


async def test_unknown_partitions_and_producers(broker: Broker) -> None:
    await broker.create("t", partitions=1)
    unknown = "UNKNOWN_TOPIC_OR_PARTITION"
    places = [("t", 0), ("nowhere", 0), ("t", 1), ("t", -1)]
    assert await marked(broker, 77, 5, *places) == ["NONE", unknown, unknown, unknown]
    assert await end(broker) == 0
    assert (await broker.ask(WriteTxnMarkersRequest(markers=[]))).markers == []


async def test_a_transaction_of_an_expired_producer_is_listed_and_ended(broker: Broker) -> None:
    await broker.create("t", partitions=1, offset_mode="dense")
    who, _ = await opened(broker, "tx", "t", 0)
    await lost(broker, "tx")
    await broker.services.store.command("UNLINK", broker.services.keys.partition("t", 0).producers)
    assert await producers(broker) == [(who, 0)]
    assert await marked(broker, who) == ["NONE"]
    assert await producers(broker) == [(who, -1)]
    assert await end(broker, 1) == 2


async def test_all_ids_are_read_once_for_a_request_and_few_at_a_time(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create("t", partitions=3)
    transactions = broker.services.transactions
    who = [(await opened(broker, f"tx{n}", "t", n))[0] for n in range(3)]
    for n in range(EXPIRE_BATCH):
        await transactions.init(f"{n}", timeout_ms=60_000, producer_id=-1, producer_epoch=-1)
    await lost(broker, "tx1")
    seen: list[str] = []
    under_way = most = 0
    view = transactions.describe

    async def counted(transactional_id: str) -> DescribeReply:
        nonlocal under_way, most
        seen.append(transactional_id)
        under_way += 1
        most = max(most, under_way)
        try:
            return await view(transactional_id)
        finally:
            under_way -= 1

    monkeypatch.setattr(transactions, "describe", counted)
    markers = [
        WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=0,
            transaction_result=False,
            topics=[PartitionIndexes(name="t", partition_indexes=[n, n])] * 2,
            coordinator_epoch=0,
        )
        for n, producer_id in enumerate(who)
    ]
    answer = await broker.ask(WriteTxnMarkersRequest(markers=markers))
    codes = [
        [row.error_code for topic in reported.topics for row in topic.partitions]
        for reported in answer.markers
    ]
    assert codes == [[E.INVALID_TXN_STATE], [E.NONE], [E.INVALID_TXN_STATE]]
    assert sorted(seen) == sorted(await transactions.list_ids())
    assert most <= EXPIRE_BATCH
