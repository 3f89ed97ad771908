"""Check pending offsets of a group for a transaction whose state Redis no longer has."""

import pytest

from korvet.base.errors import ErrorCode as E
from korvet.wire.messages.end_txn import EndTxnRequest
from korvet.wire.messages.init_producer_id import InitProducerIdRequest
from korvet.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from korvet.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.support.connected_broker import Broker

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
