"""Check that acknowledged records survive kill -9, a restart, and an outage of Redis."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop import kafka_python as kp
from tests.interop import librdkafka
from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic
from tests.interop.librdkafka import producer, read, send
from tests.interop.numbers import Numbers
from tests.interop.records import EVERY_SHAPE, Record
from tests.support.redis_servers import Replicated, replicated, server
from tests.support.redis_servers import TestServer as Server

pytestmark = pytest.mark.korvet_only


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["record", "batch"])
@pytest.mark.parametrize("death", [Broker.kill, Broker.kill_everything])
def test_every_acknowledged_record_survives_kill_9(
    own_broker: Broker, layout: str, death: Callable[[Broker], None]
) -> None:
    topic = create_topic(own_broker.address, storage_format=layout)
    stream = Numbers(own_broker.address, topic)
    for _ in range(3):
        stream.reach(100)
        death(own_broker)
        own_broker.start()
    stream.reach(100)
    stream.finish()
    # The producer is idempotent: what it retried is stored once, at the acknowledged offset.
    stream.check(own_broker.address)


@pytest.mark.parametrize("layout", ["record", "batch"])
def test_a_restart_keeps_topics_records_and_offsets(own_broker: Broker, layout: str) -> None:
    topic = create_topic(own_broker.address, storage_format=layout, retention_ms="3600000000")
    offsets = send(producer(own_broker.address), topic, EVERY_SHAPE)
    assert own_broker.stop() == 0
    own_broker.start()
    more = send(producer(own_broker.address), topic, EVERY_SHAPE)
    assert more[0] > offsets[-1]
    found = read(own_broker.address, topic, 2 * len(EVERY_SHAPE))
    assert [message.offset() for message in found] == offsets + more


@pytest.fixture
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, Server]]:
    """A broker on a Redis that can be paused."""
    with server("valkey") as running:
        broker = Broker(tmp_path_factory.mktemp("broker"), {}, ("--redis", running.url))
        broker.start()
        yield broker, running
        broker.close()


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, Replicated]]:
    """A broker on a Redis with one replica."""
    with replicated() as pair:
        broker = Broker(tmp_path_factory.mktemp("broker"), {}, ("--redis", pair.master.url))
        broker.start()
        yield broker, pair
        broker.close()


def test_clients_see_how_many_replicas_are_missing(copied: tuple[Broker, Replicated]) -> None:
    broker, _ = copied
    two, three = (create_topic(broker.address, min_insync_replicas=n) for n in ("2", "3"))
    for topic, acks, error in ((two, "all", None), (three, "1", None), (three, "all", "few")):
        failed: list[KafkaError | None] = []
        sink = producer(broker.address, acks=acks, message_timeout_ms=800, retries=1)
        sink.produce(topic, b"v", on_delivery=lambda found, _, failed=failed: failed.append(found))
        assert sink.flush(20) == 0
        codes = [each and each.code() for each in failed]
        assert codes == [error and KafkaError.NOT_ENOUGH_REPLICAS]
        python = partial(kp.send, broker.address, topic, [Record(b"k", b"v")], retries=0)
        if error:
            with pytest.raises(kp.errors.NotEnoughReplicasError):
                python(acks="all")
        else:
            assert len(python(acks=acks if acks == "all" else 1)) == 1


def test_a_replica_that_does_not_follow_is_noticed_after_the_append(
    copied: tuple[Broker, Replicated],
) -> None:
    broker, pair = copied
    topic = create_topic(broker.address, durability="replicas:1")
    codes: list[int] = []
    sink = producer(broker.address, acks="all", request_timeout_ms=300, retries=0)
    with pair.frozen():
        sink.produce(topic, b"v", on_delivery=lambda error, _: codes.append(error.code()))
        assert sink.flush(20) == 0
    assert codes == [KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND]
    kp.send(broker.address, topic, [Record(b"k", b"w")])
    assert [message.value() for message in read(broker.address, topic, 2)] == [b"v", b"w"]


def test_clients_get_the_reason_why_a_durability_is_refused(
    copied: tuple[Broker, Replicated],
) -> None:
    from kafka.admin import NewTopic as NewPythonTopic

    broker, _ = copied
    reason = "cannot keep durability=replicas:2: 1 of 2 replicas are connected"
    admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
    topic = NewTopic("refused", 1, config={"durability": "replicas:2"})
    with pytest.raises(KafkaException, match=reason) as refused:
        admin.create_topics([topic])["refused"].result(20)
    assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG
    python = kp.KafkaAdminClient(bootstrap_servers=broker.address)
    try:
        with pytest.raises(kp.errors.InvalidConfigurationError, match=reason):
            python.create_topics([NewPythonTopic("refused", 1, 1, topic_configs=topic.config)])
    finally:
        python.close()


def test_a_redis_that_stalls_delays_and_loses_nothing(interrupted: tuple[Broker, Server]) -> None:
    broker, redis = interrupted
    topic = create_topic(broker.address)
    stream = Numbers(broker.address, topic)
    stream.reach(50)
    os.kill(redis.pid, signal.SIGSTOP)
    stream.lag(200)
    os.kill(redis.pid, signal.SIGCONT)
    stream.reach(50)
    stream.finish()
    stream.check(broker.address)


def test_connections_cut_off_from_redis_come_back(interrupted: tuple[Broker, Server]) -> None:
    broker, redis = interrupted
    topic = create_topic(broker.address)
    client = redis.client()
    stream = Numbers(broker.address, topic)
    for _ in range(3):
        stream.reach(50)
        client.client_kill_filter(_type="normal", skipme=True)
    stream.reach(50)
    stream.finish()
    client.close()
    stream.check(broker.address)


def test_a_redis_that_is_gone_is_an_error_and_not_the_end(tmp_path: Path) -> None:
    with ExitStack() as stack:
        with server("valkey") as running:
            broker = stack.enter_context(Broker(tmp_path, {}, ("--redis", running.url)))
            topic = create_topic(broker.address)
            send(producer(broker.address), topic, [Record(None, b"v")])
        errors: list[int] = []
        sink = producer(broker.address, enable_idempotence=False, message_timeout_ms=1500)
        sink.produce(topic, b"v", partition=0, on_delivery=lambda e, _: errors.append(e.code()))
        assert sink.flush(60) == 0
        assert len(errors) == 1 and errors[0] != 0
        assert broker.stop() == 0
    assert "Traceback" not in broker.log


def test_two_brokers_on_one_redis_are_one_cluster(
    native_broker: Broker, own_redis: str, tmp_path: Path
) -> None:
    place = ("--redis", own_redis, "--namespace", native_broker.options[-1], "--node-id", "7")
    with Broker(tmp_path, native_broker.settings, place) as other:
        topic = create_topic(native_broker.address)
        offsets = []
        for turn in range(6):
            address = (native_broker, other)[turn % 2].address
            offsets += send(producer(address), topic, [Record(None, b"%d" % turn)] * 3)
        assert offsets == sorted(set(offsets))
        for address in (native_broker.address, other.address):
            assert [message.offset() for message in read(address, topic, 18)] == offsets
        listed = librdkafka.consumer(other.address)
        names = {f"{b.host}:{b.port}" for b in listed.list_topics(timeout=60).brokers.values()}
        listed.close()
        assert names == {native_broker.address, other.address}
        assert other.stop() == 0
