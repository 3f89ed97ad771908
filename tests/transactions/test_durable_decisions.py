"""Check that nothing acts on a transaction's decision before replicas and disk have it."""

from collections.abc import Awaitable, Callable, Collection

import pytest

from korvet.store.errors import StoreUnavailable
from korvet.transactions.members import group_member
from korvet.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.support.connected_broker import Broker
from tests.transactions.test_coordinator import FOREVER_MS, opened, state


class Replicas:
    """Has a decision only while `has` is true; notes the keys that were waited for."""

    def __init__(self) -> None:
        self.has = False
        self.keys: list[str] = []

    async def __call__(self, key: str, run: str, topics: Collection[str] | None = None) -> None:
        """Raise StoreUnavailable unless they have it."""
        self.keys.append(key)
        if not self.has:
            raise StoreUnavailable("the replicas do not have it")


@pytest.fixture
def replicas(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Replicas:
    made = Replicas()
    monkeypatch.setattr(broker.services.store, "decision_wait", made)
    return made


async def is_marked(broker: Broker) -> bool:
    """Return whether partition 0 of `t` has a marker after its record."""
    node = broker.services
    bounds = await node.store.run(node.keys.partition("t", 0, "").list_offsets())
    return bool(bounds.stable == bounds.next)


async def ended(broker: Broker, who: tuple[int, int]) -> None:
    """End the transaction as its producer does."""
    await broker.services.transactions.end(
        "tx", producer_id=who[0], producer_epoch=who[1], committed=True, bump=False
    )


async def replaced(broker: Broker, who: tuple[int, int]) -> None:
    """Begin another producer of the id, which aborts the transaction."""
    await broker.services.transactions.init(
        "tx", timeout_ms=60_000, producer_id=-1, producer_epoch=-1
    )


async def expired(broker: Broker, who: tuple[int, int]) -> None:
    """Let the transaction exceed its time."""
    node = broker.services
    await node.store.command("HSET", node.keys.transaction("tx").transaction, "started", 0)
    await node.transactions.expire("tx", forget_ms=FOREVER_MS, completion_timeout_ms=0)


@pytest.mark.parametrize(
    ("decide", "prepared", "complete"),
    [
        (ended, b"PrepareCommit", b"CompleteCommit"),
        (replaced, b"PrepareAbort", b"CompleteAbort"),
        (expired, b"PrepareAbort", b"CompleteAbort"),
    ],
)
async def test_no_marker_is_written_before_the_decision_is_durable(
    broker: Broker,
    replicas: Replicas,
    decide: Callable[[Broker, tuple[int, int]], Awaitable[None]],
    prepared: bytes,
    complete: bytes,
) -> None:
    await broker.create("t", partitions=1)
    replicas.has = True
    who = await opened(broker, "tx", "t", 0)
    replicas.has = False
    with pytest.raises(StoreUnavailable, match="do not have it"):
        await decide(broker, who)
    assert await state(broker, "tx") == prepared
    assert not await is_marked(broker)
    node = broker.services
    again = {"forget_ms": FOREVER_MS, "completion_timeout_ms": 0}
    with pytest.raises(StoreUnavailable):
        await node.transactions.expire("tx", **again)
    assert not await is_marked(broker)
    replicas.has = True
    await node.transactions.expire("tx", **again)
    assert await state(broker, "tx") == complete
    assert await is_marked(broker)


async def test_an_epoch_is_durable_before_the_producer_gets_it(
    broker: Broker, replicas: Replicas
) -> None:
    with pytest.raises(StoreUnavailable, match="do not have it"):
        await replaced(broker, (-1, -1))
    assert replicas.keys == [broker.services.keys.transaction("tx").transaction]


async def test_on_a_cluster_members_and_markers_are_durable_before_the_next_step(
    broker: Broker, replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = broker.services
    await broker.create("t", partitions=1)
    keys = node.keys
    own, stream = keys.transaction("tx").transaction, keys.partition("t", 0).stream
    group = keys.group("g").group
    monkeypatch.setattr(type(node.store), "is_cluster", True)
    monkeypatch.setattr(node.store, "run_of", lambda key: key)
    replicas.has = True
    who = await opened(broker, "tx", "t", 0)
    await node.transactions.add_members("tx", *who, [group_member("g")])
    assert replicas.keys == [own, own, own]
    replicas.has = False
    with pytest.raises(StoreUnavailable, match="do not have it"):
        await node.transactions.add_members("tx", *who, [group_member("g")])

    async def lost(key: str, run: str, topics: Collection[str] | None) -> None:
        replicas.keys.append(key)
        if key == stream:
            raise StoreUnavailable("the marker has no copy")

    replicas.keys.clear()
    monkeypatch.setattr(node.store, "decision_wait", lost)
    with pytest.raises(StoreUnavailable, match="no copy"):
        await ended(broker, who)
    assert replicas.keys == [own, stream, group]
    assert await is_marked(broker)
    assert await state(broker, "tx") == b"PrepareCommit"


async def test_offsets_of_a_transaction_are_durable_before_they_are_acknowledged(
    broker: Broker, replicas: Replicas
) -> None:
    await broker.create("t", partitions=1)
    replicas.has = True
    who = await opened(broker, "tx", "t", 0)
    row = TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata=""
    )
    request = TxnOffsetCommitRequest(
        transactional_id="tx",
        group_id="g",
        producer_id=who[0],
        producer_epoch=who[1],
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[row])],
    )
    replicas.keys.clear()
    reply = await broker.ask(request, 5)
    assert reply.topics[0].partitions[0].error_code == 0
    assert replicas.keys == [broker.services.keys.group("g").group]
    replicas.has = False
    with pytest.raises(StoreUnavailable, match="do not have it"):
        await broker.ask(request, 5)
