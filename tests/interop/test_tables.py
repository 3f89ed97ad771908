"""Check tables with a real producer: HGET has the value when the producer has the answer."""

from typing import Any

import pytest
import redis
from confluent_kafka import Producer

from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic
from tests.interop.librdkafka import eventually, producer

pytestmark = pytest.mark.korvet_only

CONFIGS = {"table_enable": "true", "storage_format": "record"}


def redis_of(broker: Broker) -> redis.Redis:
    """Return a client of the broker's Redis."""
    return redis.Redis(unix_socket_path=str(broker.folder / "data" / "redis.sock"))


def hget(broker: Broker, topic: str, key: bytes, number: int = 0) -> Any:
    """Read a table as any client of Redis does."""
    with redis_of(broker) as client:
        return client.hget(f"{{korvet:{topic}:{number}}}:table", key)


def send(sink: Producer, topic: str, *pairs: tuple[bytes, bytes | None]) -> None:
    for key, value in pairs:
        sink.produce(topic, value, key, partition=0)
    assert sink.flush(30) == 0


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_hget_has_the_value_after_the_acknowledgement(default_broker: Broker, codec: str) -> None:
    topic = create_topic(default_broker.address, **CONFIGS)
    sink = producer(default_broker.address, compression_type=codec, linger_ms=5)
    large = b"x" * 20_000
    for n in range(20):
        send(sink, topic, (b"cups", b"%d" % n), (b"forks", large))
        assert hget(default_broker, topic, b"cups") == b"%d" % n
    assert hget(default_broker, topic, b"forks") == large
    send(sink, topic, (b"cups", None))
    assert hget(default_broker, topic, b"cups") is None


def test_a_transaction_is_in_the_table_after_its_commit(default_broker: Broker) -> None:
    topic = create_topic(default_broker.address, **CONFIGS)
    sink = producer(default_broker.address, transactional_id=f"{topic}-x")
    sink.init_transactions(30)
    for n in range(10):
        sink.begin_transaction()
        send(sink, topic, *((b"%d" % k, b"%d" % n) for k in range(1000)))
        before = None if n == 0 else b"%d" % (n - 1 - (n - 1) % 2)
        assert hget(default_broker, topic, b"7") == before
        if n % 2:
            sink.abort_transaction(30)
        else:
            sink.commit_transaction(30)
        assert hget(default_broker, topic, b"7") == b"%d" % (n - n % 2)


def test_an_entry_of_xadd_is_in_the_table_soon(default_broker: Broker) -> None:
    topic = create_topic(default_broker.address, **CONFIGS)
    with redis_of(default_broker) as client:
        client.xadd(f"korvet:{topic}:0", {"key": "cups", "value": "3"})
    eventually(lambda: hget(default_broker, topic, b"cups") == b"3")
