"""Check scheduled records with real clients: each once, none early, also after kill -9."""

import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import KafkaError, KafkaException, Message

from tests.interop import kafka_python, librdkafka
from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic
from tests.interop.jvm import Tools
from tests.interop.librdkafka import eventually, producer, read
from tests.interop.records import Record
from tests.support.redis_servers import server

pytestmark = pytest.mark.korvet_only

DUE = "korvet-deliver-at"
STAMPED = {"delivery_schedule_enable": "true", "message_timestamp_type": "LogAppendTime"}
"""The timestamp of a record is the time of its append."""


def at(ms: float) -> tuple[tuple[str, bytes], ...]:
    """Return the header of a record that is due in `ms` milliseconds."""
    return ((DUE, b"%d" % (time.time() * 1000 + ms)),)


def due_of(message: Message) -> int:
    return int(dict(message.headers())[DUE])


def check(found: list[Message], sent: int) -> None:
    """Check that each number came once, not before it was due, at increasing offsets."""
    assert sorted(int(message.value()) for message in found) == list(range(sent))
    early = [m.value() for m in found if m.timestamp()[1] < due_of(m)]
    assert not early
    offsets = [message.offset() for message in found]
    assert offsets == sorted(set(offsets))


def test_librdkafka_schedules_and_reads_in_the_order_of_due_times(broker: Broker) -> None:
    topic = create_topic(broker.address, **STAMPED)
    sink = producer(broker.address, enable_idempotence=True, linger_ms=50)
    delays = [600, 150, 450, 300, 0]
    for n, delay in enumerate(delays):
        sink.produce(topic, b"%d" % n, partition=0, headers=list(at(delay)))
    sink.produce(topic, b"now", partition=0)
    assert sink.flush(30) == 0
    first, *found = read(broker.address, topic, 6)
    assert first.value() == b"now"
    check(found, 5)
    assert [int(message.value()) for message in found] == [4, 1, 3, 2, 0]


def test_kafka_python_schedules_and_reads(broker: Broker) -> None:
    topic = create_topic(broker.address, delivery_schedule_enable="true")
    delay = (("korvet-delay-ms", b"200"),)
    sent = [Record(b"k", b"a", delay), Record(b"k", b"b")]
    assert set(kafka_python.send(broker.address, topic, sent)) == {-1}
    found = kafka_python.read(broker.address, topic, 2)
    assert [(record.key, record.value) for _, record in found] == [(b"k", b"b"), (b"k", b"a")]
    assert found[1][1].headers == delay


def test_javas_producer_schedules(default_broker: Broker, java_tools: Tools) -> None:
    topic = create_topic(default_broker.address, delivery_schedule_enable="true")
    place = ("--bootstrap-server", default_broker.address, "--topic", topic)
    java_tools.run(
        "org.apache.kafka.tools.ConsoleProducer",
        *place,
        "--reader-property",
        "parse.headers=true",
        stdin="korvet-delay-ms:300\tlater\nh:x\tnow\n",
    )
    found = read(default_broker.address, topic, 2)
    assert [message.value() for message in found] == [b"now", b"later"]


@pytest.mark.parametrize("client", [librdkafka.producer, kafka_python.send])
def test_a_tombstone_of_a_client_cancels(default_broker: Broker, client: object) -> None:
    address = default_broker.address
    topic = create_topic(address, delivery_schedule_enable="true")
    name = ("korvet-schedule-id", b"reminder")
    sent = [
        Record(b"k", b"cancelled", (("korvet-delay-ms", b"300"), name)),
        Record(b"k", b"kept", (("korvet-delay-ms", b"600"),)),
        Record(b"k", None, (name,)),
    ]
    if client is kafka_python.send:
        kafka_python.send(address, topic, sent)
    else:
        sink = producer(address)
        for record in sent:
            headers = list(record.headers)
            sink.produce(topic, record.value, record.key, partition=0, headers=headers)
        assert sink.flush(30) == 0
    assert read(address, topic, 1)[0].value() == b"kept"


def test_a_transaction_with_a_scheduled_record_is_aborted(default_broker: Broker) -> None:
    address = default_broker.address
    topic = create_topic(address, delivery_schedule_enable="true")
    sink = producer(address, transactional_id=topic)
    sink.init_transactions(30)
    failed: list[KafkaError] = []
    sink.begin_transaction()
    later = [("korvet-delay-ms", b"1")]
    sink.produce(topic, b"x", headers=later, on_delivery=lambda error, _: failed.append(error))
    with pytest.raises(KafkaException):
        sink.commit_transaction(30)
    assert [error.code() for error in failed] == [KafkaError.INVALID_RECORD]
    sink.abort_transaction(30)
    sink.begin_transaction()
    sink.produce(topic, b"plain")
    sink.commit_transaction(30)
    (found,) = read(address, topic, 1, isolation_level="read_committed")
    assert found.value() == b"plain"


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["record", "batch"])
@pytest.mark.parametrize("death", [Broker.kill, Broker.kill_everything])
def test_each_record_is_appended_once_over_kill_9(
    own_broker: Broker, layout: str, death: Callable[[Broker], None]
) -> None:
    topic = create_topic(own_broker.address, storage_format=layout, **STAMPED)
    random, acknowledged, sent = Random(1), set[int](), 0
    sink = producer(
        own_broker.address,
        enable_idempotence=True,
        retry_backoff_ms=50,
        reconnect_backoff_max_ms=200,
    )

    def more(count: int) -> None:
        nonlocal sent
        for n in range(sent, sent + count):
            sink.produce(
                topic,
                b"%d" % n,
                partition=0,
                headers=list(at(random.choice((0, 100, 1000, 3000)))),
                on_delivery=lambda error, message: acknowledged.add(int(message.value())),
            )
            sink.poll(0)
            time.sleep(0.001)
        sent += count

    for _ in range(3):
        more(200)
        eventually(lambda: sink.poll(0.01) is not None and len(acknowledged) > sent - 100)
        more(20)
        death(own_broker)
        own_broker.start()
    more(200)
    assert sink.flush(60) == 0
    assert len(acknowledged) == sent
    check(read(own_broker.address, topic, sent), sent)


@pytest.mark.slow
def test_another_broker_takes_over_from_one_that_was_killed(tmp_path: Path) -> None:
    with server("valkey") as redis:
        both = [
            Broker(tmp_path / f"{n}", {}, ("--redis", redis.url, "--node-id", f"{n}"))
            for n in (1, 2)
        ]
        for broker in both:
            broker.start()
        try:
            topic = create_topic(both[1].address, **STAMPED)
            holder = redis.client().hget("korvet:cluster", "lease:schedule")
            assert isinstance(holder, bytes)
            first = both[0] if holder.split()[1].startswith(b"1-") else both[1]
            other = both[1] if first is both[0] else both[0]
            sink = producer(other.address)
            for n in range(10):
                sink.produce(topic, b"%d" % n, partition=0, headers=list(at(500 + 100 * n)))
            assert sink.flush(30) == 0
            first.kill()
            found = read(other.address, topic, 10)
            check(found, 10)
            assert max(m.timestamp()[1] - due_of(m) for m in found) < 10_000
        finally:
            for broker in both:
                if broker._process is not None:
                    broker.close()
