"""Check that a Kafka group and the Redis group of its name have one position."""

from collections.abc import Iterator
from typing import Any

import pytest
import redis
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic, topic_name
from tests.interop.librdkafka import consumer, eventually, producer, send, take
from tests.interop.members import Member, settled, union
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
    admin.delete_consumer_groups([group])[group].result(60)
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
    admin.delete_topics([topic], operation_timeout=60)[topic].result(60)
    committed = client.hkeys(f"{namespace}:group:{group}:offsets")
    assert committed == [f"{namespace}:{other}:0".encode()]
    assert client.keys(f"*{topic}*") == []
    source.close()


@pytest.fixture(scope="module", params=["record", "batch"])
def streaming(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, own_redis: str
) -> Iterator[Broker]:
    """A broker whose groups read through Redis consumer groups."""
    broker = Broker(
        tmp_path_factory.mktemp("streaming"),
        {
            "storage.format": request.param,
            "group.read.mode": "stream",
        },
        ("--redis", own_redis, "--namespace", f"streaming-{request.param}"),
    )
    broker.start()
    yield broker
    broker.close()


def test_a_group_reads_through_redis_and_loses_nothing(streaming: Broker, own_redis: str) -> None:
    address = streaming.address
    group, topic = topic_name("group"), create_topic(address)
    stream = f"{streaming.options[-1]}:{topic}:0"
    sink = producer(address)
    offsets = [send(sink, topic, [Record(None, b"%d" % n)])[0] for n in range(6)]
    first = consumer(address, group, client_id="first")
    first.subscribe([topic])
    assert [message.value() for message in take(first, 6)] == [b"%d" % n for n in range(6)]
    first.commit(offsets=[TopicPartition(topic, 0, offsets[2])], asynchronous=False)
    with redis.Redis.from_url(own_redis) as client:
        (row,) = client.xinfo_groups(stream)
        assert (row["name"].decode(), row["pending"], row["consumers"]) == (group, 4, 1)
        first.close()
        second = consumer(address, group, client_id="second")
        second.subscribe([topic])
        assert [message.offset() for message in take(second, 4)] == offsets[2:]
        later = send(sink, topic, [Record(None, b"later")])
        assert [message.offset() for message in take(second, 1)] == later
        second.commit(asynchronous=False)
        second.close()
        (row,) = client.xinfo_groups(stream)
        assert row["pending"] == 0


def test_a_group_may_read_through_redis_alone(native: tuple[Broker, Any, str]) -> None:
    broker, client, namespace = native
    address = broker.address
    group, topic = topic_name("group"), create_topic(address)
    admin = AdminClient({"bootstrap.servers": address})
    change = ConfigEntry("group.read.mode", "stream", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=[change])
    admin.incremental_alter_configs([resource])[resource].result(60)
    send(producer(address), topic, [Record(None, b"v")] * 3)
    for name, pending in ((group, 3), (topic_name("other"), 0)):
        source = consumer(address, name, client_id=name)
        source.subscribe([topic])
        take(source, 3)
        rows = client.xinfo_groups(f"{namespace}:{topic}:0")
        assert [row["pending"] for row in rows if row["name"].decode() == name] == [pending][
            :pending
        ]
        source.close()


def test_members_of_one_client_id_read_by_offset(streaming: Broker) -> None:
    address = streaming.address
    group, topic = topic_name("group"), create_topic(address, 2)
    members = [Member(address, group, topic, client_id="same") for _ in range(2)]
    settled(members, 2)
    stored = {
        (p, o) for p in range(2) for o in send(producer(address), topic, [Record(None, b"v")], p)
    }
    eventually(lambda: union(members) == stored)
    for member in members:
        member.leave()
    assert "several members have one client id" in streaming.log
