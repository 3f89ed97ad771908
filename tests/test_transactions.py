"""Ending transactions."""

from time import monotonic

from korvet.scripts import log
from korvet.topics import TopicTable
from korvet.transactions import Transactions, member_of
from korvet.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from tests.handlers.conftest import Broker, broker

__all__ = ["broker"]


async def opened(broker: Broker, transactional_id: str, topic: str, number: int) -> tuple[int, int]:
    """A transaction has a record in the partition. Returns producer id and epoch."""
    node = broker.node
    began = await node.transactions.init(
        transactional_id, timeout_ms=60_000, producer_id=-1, producer_epoch=-1
    )
    who = began.producer_id, began.producer_epoch
    reply = await node.transactions.add(transactional_id, *who, [member_of(topic, number)])
    found = await node.topics.get(topic)
    assert found is not None
    fields = [b"transaction", b"%d" % who[0], b"value", b"v"]
    appended = await node.store.run(
        log.append(
            node.keys,
            topic,
            number,
            topic_id=found.id,
            count=1,
            size=10,
            max_timestamp=1,
            producer_id=who[0],
            producer_epoch=who[1],
            base_sequence=0,
            transaction=reply.transaction,
            fields=[len(fields), *fields],
        )
    )
    assert appended.error == 0
    return who


async def test_a_broker_that_has_not_heard_of_new_partitions_marks_them_too(
    broker: Broker,
) -> None:
    await broker.create("t", partitions=1)
    node = broker.node
    deaf = TopicTable(node.store, node.keys, node.topics._configs)
    await deaf.refresh()
    grown = CreatePartitionsTopic(name="t", count=3, assignments=None)
    await broker.ask(CreatePartitionsRequest(topics=[grown], timeout_ms=1000, validate_only=False))
    await node.topics.refresh()
    producer_id, epoch = await opened(broker, "tx", "t", 2)
    deaf._fresh_until = monotonic() + 60
    reply = await Transactions(node.store, node.keys, deaf).end(
        "tx", producer_id=producer_id, producer_epoch=epoch, committed=True, bump=True
    )
    assert reply.error == 0
    bounds = await node.store.run(log.bounds(node.keys, "t", 2, topic_id=""))
    assert (bounds.stable, bounds.records) == (bounds.next, 1)
