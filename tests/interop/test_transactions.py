"""Check transactions of confluent-kafka and aiokafka: `read_committed` reads all or nothing."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPlace
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)

from tests.interop import librdkafka
from tests.interop.brokers import Broker
from tests.interop.conftest import change_broker, create_topic, topic_name
from tests.interop.kafka_python import KafkaAdminClient
from tests.interop.kafka_python import TopicPartition as PythonPlace
from tests.interop.librdkafka import consumer, eventually, take

END_TXN = 26
pytestmark = pytest.mark.needs_api(END_TXN)

COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"


def transactional(address: str, name: str | None = None, **settings: Any) -> Producer:
    """Return a transactional producer that has fenced its predecessors."""
    sink = librdkafka.producer(address, transactional_id=name or topic_name("tx"), **settings)
    sink.init_transactions(60)
    return sink


def write(sink: Producer, topic: str, values: Iterable[str], partitions: int = 1) -> None:
    """Send the values to the broker; their transaction stays open."""
    for number, value in enumerate(values):
        sink.produce(topic, value.encode(), partition=number % partitions)
    assert sink.flush(60) == 0


def values(address: str, topic: str, isolation: str, partitions: int = 1) -> list[str]:
    """Return all values that a new consumer reads up to the end, sorted."""
    source = consumer(
        address, isolation_level=isolation, enable_partition_eof=True, fetch_wait_max_ms=10
    )
    librdkafka.assign(
        source, [TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(partitions)]
    )
    found, ended = [], set()

    def finished() -> bool:
        for message in source.consume(100, timeout=0.02):
            error = message.error()
            if error is None:
                found.append(message.value().decode())
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(message.partition())
        return len(ended) == partitions

    eventually(finished)
    source.close()
    return sorted(found)


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_a_committed_transaction_is_read_whole(broker: Broker, codec: str) -> None:
    topic = create_topic(broker.address, partitions=3)
    sink = transactional(broker.address, compression_type=codec)
    sink.begin_transaction()
    write(sink, topic, [f"{n:02}" for n in range(30)], 3)
    assert values(broker.address, topic, COMMITTED, 3) == []
    assert len(values(broker.address, topic, UNCOMMITTED, 3)) == 30
    sink.commit_transaction(60)
    assert values(broker.address, topic, COMMITTED, 3) == [f"{n:02}" for n in range(30)]


def test_an_aborted_transaction_is_never_read_committed(broker: Broker) -> None:
    topic = create_topic(broker.address)
    sink = transactional(broker.address)
    for turn, end in enumerate([sink.commit_transaction, sink.abort_transaction] * 3):
        sink.begin_transaction()
        write(sink, topic, [f"{turn}{letter}" for letter in "abc"])
        end(60)
    assert values(broker.address, topic, COMMITTED) == [f"{t}{x}" for t in (0, 2, 4) for x in "abc"]
    assert len(values(broker.address, topic, UNCOMMITTED)) == 18


def test_transactions_of_several_producers_interleave(broker: Broker) -> None:
    topic = create_topic(broker.address)
    one, two = transactional(broker.address), transactional(broker.address)
    one.begin_transaction()
    two.begin_transaction()
    for number in range(3):
        write(one, topic, [f"one {number}"])
        write(two, topic, [f"two {number}"])
    two.commit_transaction(60)
    # A consumer does not get records after an open transaction's first record.
    assert values(broker.address, topic, COMMITTED) == []
    one.abort_transaction(60)
    assert values(broker.address, topic, COMMITTED) == ["two 0", "two 1", "two 2"]


def test_records_outside_any_transaction_wait_behind_an_open_one(broker: Broker) -> None:
    topic = create_topic(broker.address)
    sink, plain = transactional(broker.address), librdkafka.producer(broker.address)
    write(plain, topic, ["before"])
    sink.begin_transaction()
    write(sink, topic, ["inside"])
    write(plain, topic, ["after"])
    assert values(broker.address, topic, COMMITTED) == ["before"]
    sink.commit_transaction(60)
    assert values(broker.address, topic, COMMITTED) == ["after", "before", "inside"]


def test_a_waiting_reader_gets_the_transaction_when_it_commits(broker: Broker) -> None:
    topic = create_topic(broker.address)
    sink = transactional(broker.address)
    source = consumer(broker.address, isolation_level=COMMITTED)
    librdkafka.assign(source, [TopicPartition(topic, 0, OFFSET_BEGINNING)])
    sink.begin_transaction()
    write(sink, topic, ["a", "b"])
    assert source.consume(1, timeout=0.3) == []
    sink.commit_transaction(60)
    assert [message.value() for message in take(source, 2)] == [b"a", b"b"]
    source.close()


def test_a_successor_fences_its_predecessor(default_broker: Broker) -> None:
    topic, name = create_topic(default_broker.address), topic_name("tx")
    older = transactional(default_broker.address, name)
    older.begin_transaction()
    write(older, topic, ["lost"])
    newer = transactional(default_broker.address, name)
    newer.begin_transaction()
    write(newer, topic, ["kept"])
    with pytest.raises(KafkaException) as refusal:
        older.commit_transaction(60)
    assert refusal.value.args[0].code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED)
    newer.commit_transaction(60)
    assert values(default_broker.address, topic, COMMITTED) == ["kept"]


def test_a_transaction_left_alone_is_aborted_in_time(default_broker: Broker) -> None:
    topic = create_topic(default_broker.address)
    sink = transactional(default_broker.address, transaction_timeout_ms=1000)
    sink.begin_transaction()
    write(sink, topic, ["forgotten"])
    plain = librdkafka.producer(default_broker.address)
    write(plain, topic, ["after"])
    eventually(lambda: values(default_broker.address, topic, COMMITTED) == ["after"], 30)
    with pytest.raises(KafkaException):
        sink.commit_transaction(60)


def test_offsets_become_visible_with_the_commit(default_broker: Broker) -> None:
    address, group = default_broker.address, topic_name("group")
    topic = create_topic(address)
    write(librdkafka.producer(address), topic, "abcd")
    source = consumer(address, group)
    source.subscribe([topic])
    take(source, 4)
    place = TopicPartition(topic, 0)
    (position,) = source.position([place])
    sink = transactional(address)
    for end, expected in (
        (sink.abort_transaction, -1001),
        (sink.commit_transaction, position.offset),
    ):
        sink.begin_transaction()
        sink.send_offsets_to_transaction([position], source.consumer_group_metadata(), 20)
        end(60)
        assert eventually(lambda: source.committed([place], 10))[0].offset == expected
    source.close()


def test_consume_transform_produce_writes_each_result_once(default_broker: Broker) -> None:
    address, name = default_broker.address, topic_name("tx")
    origin, result = create_topic(address, partitions=2), create_topic(address)
    sent = [f"{n:03}" for n in range(200)]
    write(librdkafka.producer(address), origin, sent, 2)
    for turns in (2, 3, 1):
        # The application ends in the middle of a transaction and starts again.
        source, sink = application(address, name, origin)
        for turn in range(turns):
            pass_on(source, sink, result, finish=turn < turns - 1)
        source.close()
    source, sink = application(address, name, origin)
    left = len(sent) - len(values(address, result, COMMITTED))
    while left > 0:
        left -= pass_on(source, sink, result, finish=True)
    source.close()
    assert values(address, result, COMMITTED) == sent
    assert len(values(address, result, UNCOMMITTED)) > len(sent)


def application(address: str, name: str, origin: str) -> tuple[Consumer, Producer]:
    """Return consumer and producer of one run of an application that reads `origin`."""
    source = consumer(address, f"{name}-group", isolation_level=COMMITTED)
    source.subscribe([origin])
    return source, transactional(address, name)


def pass_on(source: Consumer, sink: Producer, result: str, *, finish: bool) -> int:
    """Copy records in one transaction, and return their number.

    With `finish` the transaction is committed with their offsets, otherwise it stays open.
    """
    messages = eventually(lambda: source.consume(20, timeout=0.1))
    sink.begin_transaction()
    write(sink, result, [message.value().decode() for message in messages])
    if finish:
        position = source.position(source.assignment())
        sink.send_offsets_to_transaction(position, source.consumer_group_metadata(), 20)
        sink.commit_transaction(60)
    return len(messages)


def test_transactions_are_listed_and_described(default_broker: Broker) -> None:
    topic, name = create_topic(default_broker.address), topic_name("tx")
    sink = transactional(default_broker.address, name)
    admin = KafkaAdminClient(bootstrap_servers=default_broker.address)

    def state() -> str:
        return str(admin.describe_transactions([name])[name].state.value)

    sink.begin_transaction()
    write(sink, topic, ["a"])
    assert state() == "Ongoing"
    listed = [row for rows in admin.list_transactions().values() for row in rows]
    assert name in {row.transactional_id for row in listed}
    place = PythonPlace(topic, 0)
    (writer,) = admin.describe_producers([place])[place].active_producers
    assert (writer.coordinator_epoch, writer.current_transaction_start_offset >= 0) == (-1, True)
    sink.commit_transaction(60)
    eventually(lambda: state() == "CompleteCommit")
    (writer,) = admin.describe_producers([place])[place].active_producers
    assert (writer.coordinator_epoch, writer.current_transaction_start_offset) == (0, -1)
    admin.close()


@pytest.mark.korvet_only
def test_when_idle_ids_are_forgotten_may_change_while_brokers_run(own_broker: Broker) -> None:
    topic, name = create_topic(own_broker.address), topic_name("tx")
    sink = transactional(own_broker.address, name, transaction_timeout_ms=1000)
    admin = KafkaAdminClient(bootstrap_servers=own_broker.address)

    def listed() -> set[str]:
        found = admin.list_transactions().values()
        return {row.transactional_id for rows in found for row in rows}

    sink.begin_transaction()
    write(sink, topic, ["a"])
    sink.commit_transaction(60)
    assert listed() == {name}
    change_broker(own_broker.address, transactional_id_expiration_ms="1")
    eventually(lambda: listed() == set())
    admin.close()


async def test_aiokafka_commits_and_aborts(broker: Broker) -> None:
    topic = create_topic(broker.address)
    sink = AIOKafkaProducer(bootstrap_servers=broker.address, transactional_id=topic_name("tx"))
    await sink.start()
    async with sink.transaction():
        await sink.send_and_wait(topic, b"kept", partition=0)
    with pytest.raises(ZeroDivisionError):
        async with sink.transaction():
            await sink.send_and_wait(topic, b"dropped", partition=0)
            raise ZeroDivisionError
    async with sink.transaction():
        await sink.send_and_wait(topic, b"kept too", partition=0)
    await sink.stop()
    source = AIOKafkaConsumer(
        bootstrap_servers=broker.address,
        isolation_level=COMMITTED,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=100,
    )
    await source.start()
    source.assign([AioPlace(topic, 0)])
    async with asyncio.timeout(20):
        found = [(await source.getone()).value for _ in range(2)]
    await source.stop()
    assert found == [b"kept", b"kept too"]
