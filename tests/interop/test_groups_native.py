"""Kafka's groups and Redis's groups of the same name: one position, seen from both sides."""

from collections.abc import Iterator
from typing import Any

import pytest
import redis
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic, topic_name
from tests.interop.librdkafka import consumer, producer, send, take
from tests.interop.records import Record

pytestmark = pytest.mark.korvet_only


@pytest.fixture
def native(native_broker: Broker, own_redis: str) -> Iterator[tuple[Broker, Any, str]]:
    """The broker, a plain client of its Redis, and the namespace."""
    with redis.Redis.from_url(own_redis) as client:
        yield native_broker, client, native_broker.options[-1]


def test_a_native_worker_takes_over_where_the_group_has_committed(
    native: tuple[Broker, Any, str],
) -> None:
    broker, client, namespace = native
    group, topic = topic_name("group"), create_topic(broker.address)
    stream = f"{namespace}:{topic}:0"
    offsets = send(producer(broker.address), topic, [Record(None, b"%d" % n) for n in range(6)])
    source = consumer(broker.address, group)
    source.subscribe([topic])
    take(source, 6)
    source.commit(offsets=[TopicPartition(topic, 0, offsets[3])], asynchronous=False)
    source.close()
    assert [row["name"].decode() for row in client.xinfo_groups(stream)] == [group]
    found = client.xreadgroup(group, "worker", {stream: ">"}, count=2)
    assert [fields[b"value"] for _, fields in found[0][1]] == [b"3", b"4"]


def test_a_deleted_group_leaves_no_redis_group(native: tuple[Broker, Any, str]) -> None:
    broker, client, namespace = native
    group, topic = topic_name("group"), create_topic(broker.address)
    source = consumer(broker.address, group)
    source.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    source.close()
    stream = f"{namespace}:{topic}:0"
    assert len(client.xinfo_groups(stream)) == 1
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.delete_consumer_groups([group])[group].result(10)
    assert client.xinfo_groups(stream) == []
    assert client.keys(f"*{group}*") == []


def test_a_deleted_topic_takes_its_commits_and_redis_groups_with_it(
    native: tuple[Broker, Any, str],
) -> None:
    broker, client, namespace = native
    group, topic, other = (
        topic_name("group"),
        create_topic(broker.address, 2),
        create_topic(broker.address),
    )
    source = consumer(broker.address, group)
    places = [TopicPartition(topic, 0, 0), TopicPartition(topic, 1, 0), TopicPartition(other, 0, 0)]
    source.commit(offsets=places, asynchronous=False)
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.delete_topics([topic], operation_timeout=10)[topic].result(10)
    committed = client.hkeys(f"{namespace}:group:{group}:offsets")
    assert committed == [f"{namespace}:{other}:0".encode()]
    assert client.keys(f"*{topic}*") == []
    source.close()
