"""Check the test broker, through real clients on real sockets."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from korvet import Record
from korvet.apis import TABLE
from korvet.base.errors import ErrorCode
from korvet.config.setting import ConfigError
from korvet.testing import Broker
from tests.interop.kafka_python import consumer


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A broker for the tests of this module; each test uses different topics."""
    with Broker(topics={"orders": 3}) as running:
        yield running


def produce(broker: Broker, topic: str, *values: bytes, **config: Any) -> int:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **config})
    for value in values:
        producer.produce(topic, value)
    return int(producer.flush(20))


def stored(broker: Broker, topic: str) -> list[bytes | None]:
    return [record.value for record in broker.log.records(topic, 0)]


def test_topics_exist_when_the_broker_starts(broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    assert len(admin.list_topics(timeout=20).topics["orders"].partitions) == 3


def test_librdkafka_produces_and_consumes(broker: Broker) -> None:
    broker.log.create_topic("confluent")
    assert produce(broker, "confluent", b"a", b"b") == 0
    assert stored(broker, "confluent") == [b"a", b"b"]
    source = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "confluent",
            "auto.offset.reset": "earliest",
        }
    )
    source.subscribe(["confluent"])
    first = source.poll(20)
    source.close()
    assert first is not None and first.value() == b"a"


def test_kafka_python_consumes_what_the_log_was_given(broker: Broker) -> None:
    broker.log.create_topic("python")
    broker.log.produce("python", [Record(b"a"), Record(b"b")])
    with consumer(broker.bootstrap_servers, consumer_timeout_ms=500) as source:
        source.subscribe(["python"])
        assert [record.value for record in source] == [b"a", b"b"]


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_producer_sends_again_after_retriable_errors(broker: Broker, idempotent: bool) -> None:
    topic = f"again-{idempotent}"
    broker.log.create_topic(topic)
    broker.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    assert produce(broker, topic, b"a", **{"enable.idempotence": idempotent}) == 0
    assert stored(broker, topic) == [b"a"]


def test_an_open_connection_gets_the_error_too(broker: Broker) -> None:
    broker.log.create_topic("warm")
    failures: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
    for value in (b"a", b"b", b"c"):
        if value == b"c":
            broker.fail_next("Produce", ErrorCode.MESSAGE_TOO_LARGE)
        producer.produce("warm", value, on_delivery=lambda error, _: failures.append(error))
        producer.flush(20)
    assert [failure and failure.name() for failure in failures] == [
        None,
        None,
        "MSG_SIZE_TOO_LARGE",
    ]
    assert stored(broker, "warm") == [b"a", b"b"]


def test_an_admin_client_gets_the_error_of_its_request(broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    broker.fail_next("CreateTopics", "POLICY_VIOLATION")
    (future,) = admin.create_topics([NewTopic("refused", 1)]).values()
    with pytest.raises(Exception, match="POLICY_VIOLATION"):
        future.result(20)
    (future,) = admin.create_topics([NewTopic("refused", 1)]).values()
    assert future.result(20) is None


def test_errors_that_no_request_met_can_be_dropped(broker: Broker) -> None:
    broker.log.create_topic("dropped")
    broker.fail_next("Produce", "MESSAGE_TOO_LARGE", times=100)
    broker.clear_faults()
    assert produce(broker, "dropped", b"a") == 0


@pytest.mark.parametrize(
    ("api", "error", "sentence"),
    [
        ("Prodduce", "NONE", "There is no API 'Prodduce'; did you mean Produce?"),
        ("Fetch", "NOT_A_LEADER_OR_FOLLOWER", "did you mean NOT_LEADER_OR_FOLLOWER?"),
    ],
)
def test_an_unknown_name_is_refused_with_a_near_one(
    broker: Broker, api: str, error: str, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence.replace("?", r"\?")):
        broker.fail_next(api, error)


def test_every_api_can_fail(broker: Broker) -> None:
    for row in TABLE:
        broker.fail_next(row.name, "UNKNOWN_SERVER_ERROR")
    broker.clear_faults()


def test_clients_reconnect_to_a_broker_that_restarts() -> None:
    with Broker(topics={"orders": 1}) as broker:
        address = broker.bootstrap_servers
        producer = Producer({"bootstrap.servers": address, "reconnect.backoff.ms": 10})
        producer.produce("orders", b"a")
        assert producer.flush(20) == 0
        broker.stop()
        producer.produce("orders", b"b")
        assert producer.flush(0.2) == 1
        broker.start()
        assert producer.flush(20) == 0 and broker.bootstrap_servers == address
        assert stored(broker, "orders") == [b"a", b"b"]


def test_the_topics_follow_the_settings() -> None:
    with Broker(topics={"orders": 1}, settings={"offset.mode": "dense"}) as broker:
        assert broker.log.topic("orders").offset_mode == "dense"


def test_two_brokers_serve_one_log() -> None:
    with Broker(topics={"orders": 1}) as first, Broker(redis=first.redis_url, node_id=1) as second:
        assert produce(second, "orders", b"a") == 0
        assert stored(first, "orders") == [b"a"]


def test_nothing_is_left_of_a_closed_broker(tmp_path: Path) -> None:
    before = set(threading.enumerate())  # other tests' threads may end meanwhile
    broker = Broker().start()
    folder = Path(broker.redis_url.removeprefix("unix://")).parent
    assert folder.is_dir()
    broker.close()
    broker.close()
    assert not folder.exists()
    assert set(threading.enumerate()) <= before


def test_a_wrong_setting_is_refused_at_start() -> None:
    with pytest.raises(ConfigError, match=r"did you mean num\.partitions\?"):
        Broker(settings={"num.partitons": "1"}).start()
    with pytest.raises(RuntimeError, match="use `with Broker"):
        _ = Broker().bootstrap_servers


def test_settings_are_the_brokers() -> None:
    with Broker(settings={"num.partitions": "4"}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        (future,) = admin.create_topics([NewTopic("orders")]).values()
        future.result(20)
        assert broker.log.topic("orders").partitions == 4


async def test_the_broker_runs_in_the_context_of_an_event_loop() -> None:
    from aiokafka import AIOKafkaProducer

    async with Broker(topics={"orders": 1}) as broker:
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers)
        await producer.start()
        await producer.send_and_wait("orders", b"a")
        await producer.stop()
        assert stored(broker, "orders") == [b"a"]


def test_the_fixture_starts_a_broker(korvet_broker: Broker) -> None:
    assert korvet_broker.log.topics() == []


def test_the_session_fixture_starts_a_broker(korvet_session_broker: Broker) -> None:
    assert korvet_session_broker.bootstrap_servers
