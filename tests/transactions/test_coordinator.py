"""Check the end of transactions, InitProducerId with unknown ids, and ListTransactions.

Each due transaction is checked, whatever fails before it.
"""

from dataclasses import replace
from time import monotonic

import pytest

from korvet.base.errors import ErrorCode
from korvet.base.errors import ErrorCode as E
from korvet.broker.background.tasks import BackgroundTasks
from korvet.store.errors import ScriptFailed
from korvet.topics.table import TopicTable
from korvet.transactions.coordinator import MIN_CHECK_INTERVAL_MS, TransactionCoordinator
from korvet.transactions.members import partition_member
from korvet.wire import batch_builder
from korvet.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from korvet.wire.messages.init_producer_id import InitProducerIdRequest
from korvet.wire.messages.list_transactions import ListTransactionsRequest
from korvet.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.connected_broker import Broker

FOREVER_MS = 10**12


async def opened(broker: Broker, transactional_id: str, topic: str, number: int) -> tuple[int, int]:
    """Begin a transaction with a record in the partition. Returns producer id and epoch."""
    node = broker.services
    began = await node.transactions.init(
        transactional_id, timeout_ms=60_000, producer_id=-1, producer_epoch=-1
    )
    who = began.producer_id, began.producer_epoch
    reply = await node.transactions.add_members(
        transactional_id, *who, [partition_member(topic, number)]
    )
    found = await node.topics.get(topic)
    assert found is not None
    fields = [b"transaction", b"%d" % who[0], b"value", b"v"]
    appended = await node.store.run(
        node.keys.partition(topic, number, found.id).append(
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


async def overdue(broker: Broker, transactional_id: str, who: tuple[int, int], at: int) -> None:
    """Decide the transaction's end as a broker that then died; its check is due at `at`."""
    node = broker.services
    reply = await node.store.run(
        node.keys.transaction(transactional_id).end(
            producer_id=who[0], producer_epoch=who[1], committed=1, bump=0
        )
    )
    assert reply.pending
    key = node.keys.transaction(transactional_id).transaction
    await node.store.command("HSET", key, "updated", 0)
    await node.store.command("ZADD", node.keys.transactions(), at, transactional_id)


async def state(broker: Broker, transactional_id: str) -> bytes:
    return (await broker.services.transactions.describe(transactional_id)).state


async def test_a_transaction_that_cannot_be_finished_is_in_nobodys_way(broker: Broker) -> None:
    await broker.create("broken", partitions=1)
    await broker.create("t", partitions=1)
    for at, topic in enumerate(["broken", "t"], 1):
        await overdue(broker, topic, await opened(broker, topic, topic, 0), at)
    node = broker.services
    await node.store.command("RENAME", node.keys.partition("broken", 0).producers, "elsewhere")
    await node.store.command("SET", node.keys.partition("broken", 0).producers, "no hash")
    with pytest.raises(ScriptFailed, match="WRONGTYPE"):
        await node.transactions.expire_due(forget_ms=FOREVER_MS)
    assert await state(broker, "broken") == b"PrepareCommit"
    assert await state(broker, "t") == b"CompleteCommit"


async def test_a_table_whose_key_has_another_type_holds_up_no_transaction(broker: Broker) -> None:
    await broker.create("t", partitions=1, table_enable="true")
    who, node = await opened(broker, "tx", "t", 0), broker.services
    await node.store.command("SET", node.keys.partition("t", 0).table, "no hash")
    reply = await node.transactions.end(
        "tx", producer_id=who[0], producer_epoch=who[1], committed=True, bump=False, number=-1
    )
    assert reply.error == ErrorCode.NONE
    assert await state(broker, "tx") == b"CompleteCommit"
    await BackgroundTasks(node).retention.fill_tables()


async def test_a_commit_commits_no_records_of_a_transaction_whose_end_redis_has_lost(
    broker: Broker,
) -> None:
    """After a failover, records of an aborted transaction were committed with the next one."""
    await broker.create("t", partitions=1)
    await opened(broker, "tx", "t", 0)
    node = broker.services
    lost = await node.store.command("HGETALL", node.keys.partition("t", 0).producers)
    await node.transactions.end(
        "tx", producer_id=int(lost[0]), producer_epoch=0, committed=False, bump=False, number=-1
    )
    await node.transactions.add_members("tx", int(lost[0]), 0, [partition_member("t", 0)])
    await node.store.command("HSET", node.keys.partition("t", 0).producers, *lost)
    reply = await node.transactions.end(
        "tx", producer_id=int(lost[0]), producer_epoch=0, committed=True, bump=False, number=-1
    )
    assert reply.error == ErrorCode.NONE
    assert await state(broker, "tx") == b"CompleteCommit"
    aborted = node.keys.partition("t", 0).aborted_txns
    assert await node.store.command("ZCARD", aborted) == 2


async def test_all_due_ids_are_checked_in_one_round(broker: Broker) -> None:
    node, many = broker.services, 250
    for number in range(many):
        await node.store.command("ZADD", node.keys.transactions(), 1 + number, f"tx{number}")
    await BackgroundTasks(node).end_due_transactions()
    assert await node.transactions.list_ids() == []


async def test_an_id_with_a_short_timeout_is_not_checked_continuously(broker: Broker) -> None:
    node = broker.services
    await node.transactions.init("tx", timeout_ms=1, producer_id=-1, producer_epoch=-1)
    await node.store.command("ZADD", node.keys.transactions(), 1, "tx")
    seconds, micros = await node.store.command("TIME")
    assert await node.transactions.expire_due(forget_ms=FOREVER_MS) == 1
    moment = float(await node.store.command("ZSCORE", node.keys.transactions(), "tx"))
    assert moment >= int(seconds) * 1000 + int(micros) // 1000 + MIN_CHECK_INTERVAL_MS


async def test_a_broker_whose_clock_is_ahead_puts_nothing_off(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = broker.services
    monkeypatch.setattr("korvet.transactions.completion.time", lambda: 5e9)
    await node.transactions.init("tx", timeout_ms=60_000, producer_id=-1, producer_epoch=-1)
    moment = float(await node.store.command("ZSCORE", node.keys.transactions(), "tx"))
    seconds, _ = await node.store.command("TIME")
    assert moment <= (int(seconds) + 61) * 1000


async def test_a_broker_without_the_new_partitions_in_its_table_marks_them_too(
    broker: Broker,
) -> None:
    await broker.create("t", partitions=1)
    node = broker.services
    deaf = TopicTable(node.store, node.keys, node.topics._configs)
    await deaf.refresh()
    grown = CreatePartitionsTopic(name="t", count=3, assignments=None)
    await broker.ask(CreatePartitionsRequest(topics=[grown], timeout_ms=1000, validate_only=False))
    await node.topics.refresh()
    producer_id, epoch = await opened(broker, "tx", "t", 2)
    deaf._fresh_until = monotonic() + 60
    reply = await TransactionCoordinator(replace(node.node, topics=deaf)).end(
        "tx", producer_id=producer_id, producer_epoch=epoch, committed=True, bump=True
    )
    assert reply.error == 0
    bounds = await node.store.run(node.keys.partition("t", 2, "").list_offsets())
    assert (bounds.stable, bounds.records) == (bounds.next, 1)


async def produced(
    broker: Broker, producer_id: int, epoch: int, sequence: int, version: int
) -> ErrorCode:
    """Produce a record of transactional id `tx`; return the error."""
    batch = batch_builder.build(
        [(0, 0, None, b"v", [])], transactional=True, producer=(producer_id, epoch, sequence)
    )
    rows = [PartitionProduceData(index=0, records=bytes(batch))]
    topics = [TopicProduceData(name="t", partition_data=rows)]
    request = ProduceRequest(transactional_id="tx", acks=-1, timeout_ms=1000, topic_data=topics)
    answer = await broker.ask(request, version)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


@pytest.mark.parametrize(
    ("version", "error"),
    [(10, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)],
)
async def test_records_of_no_open_transaction_are_refused_by_version(
    broker: Broker, version: int, error: ErrorCode
) -> None:
    await broker.create("t", partitions=1)
    began = await broker.services.transactions.init(
        "tx", timeout_ms=60_000, producer_id=-1, producer_epoch=-1
    )
    assert await produced(broker, began.producer_id, began.producer_epoch, 0, version) == error


async def test_a_broker_forgets_the_transaction_that_another_has_ended(broker: Broker) -> None:
    """The epoch is unchanged: a producer that ends transactions by EndTxn below 5 keeps it."""
    await broker.create("t", partitions=1)
    node = broker.services
    began = await node.transactions.init("tx", timeout_ms=60_000, producer_id=-1, producer_epoch=-1)
    who = began.producer_id, began.producer_epoch

    async def produce(sequence: int) -> ErrorCode:
        return await produced(broker, *who, sequence, 12)

    async def ended_elsewhere(committed: bool) -> int:
        reply = await node.transactions.end(
            "tx", producer_id=who[0], producer_epoch=who[1], committed=committed, bump=False
        )
        return reply.error

    assert await produce(0) == ErrorCode.NONE
    assert await ended_elsewhere(True) == 0
    assert await produce(1) == ErrorCode.TRANSACTION_ABORTABLE
    assert await produce(1) == ErrorCode.NONE
    assert await ended_elsewhere(True) == 0


async def init(
    broker: Broker, transactional_id: str | None, producer_id: int, epoch: int
) -> tuple[E, int, int]:
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=60_000,
        producer_id=producer_id,
        producer_epoch=epoch,
    )
    answer = await broker.ask(request)
    return E(answer.error_code), answer.producer_id, answer.producer_epoch


@pytest.mark.parametrize("transactional_id", [None, "x"])
@pytest.mark.parametrize("who", [(-1, -2), (-1, 0), (-2, -1), (5, -1)])
async def test_an_id_without_an_epoch_is_no_producer(
    broker: Broker, transactional_id: str | None, who: tuple[int, int]
) -> None:
    assert await init(broker, transactional_id, *who) == (E.INVALID_REQUEST, -1, -1)


@pytest.mark.parametrize("who", [(-2, -2), (-2, 0), (5, -2)])
async def test_only_minus_one_is_none(broker: Broker, who: tuple[int, int]) -> None:
    error, _, epoch = await init(broker, None, *who)
    assert (error, epoch) == (E.NONE, 0)
    error, producer_id, epoch = await init(broker, "x", *who)
    assert (error, epoch) == (E.NONE, 0)  # the id is unused: a fresh one
    assert await init(broker, "x", *who) == (E.PRODUCER_FENCED, -1, -1)
    assert await init(broker, "x", producer_id, -2) == (E.PRODUCER_FENCED, -1, -1)
    assert await init(broker, "x", -1, -1) == (E.NONE, producer_id, 1)


LONG = "a" * 200 + "!"
IDS = ["orders-1", "orders-2", "app:0_1 ü", LONG]


async def listed(broker: Broker, pattern: str | None) -> tuple[int, list[str]]:
    """Return the response's error, and its ids."""
    request = ListTransactionsRequest(
        state_filters=[],
        producer_id_filters=[],
        duration_filter=-1,
        transactional_id_pattern=pattern,
    )
    answer = await broker.ask(request)
    return answer.error_code, sorted(row.transactional_id for row in answer.transaction_states)


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        (None, IDS),
        ("", IDS),
        (".*", IDS),
        ("orders", []),
        ("orders-[^1]", ["orders-2"]),
        (r"app:\d_\d .", ["app:0_1 ü"]),
        ("(a+)+", []),
        ("((a|a)*)*!", [LONG]),
    ],
)
async def test_a_pattern_lists_the_ids_it_matches_whole(
    broker: Broker, pattern: str | None, wanted: list[str]
) -> None:
    for name in IDS:
        await broker.services.transactions.init(
            name, timeout_ms=60_000, producer_id=-1, producer_epoch=-1
        )
    assert await listed(broker, pattern) == (0, sorted(wanted))


@pytest.mark.parametrize("pattern", ["(", "a(?=b)", r"(a)\1", "a**"])
async def test_what_is_no_pattern_of_re2_is_refused(broker: Broker, pattern: str) -> None:
    assert await listed(broker, pattern) == (ErrorCode.INVALID_REGULAR_EXPRESSION, [])
