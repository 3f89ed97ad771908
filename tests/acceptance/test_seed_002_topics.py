"""Check seed 002, Topic Management: create, delete and list topics, and the keys in Redis."""

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic, topic_name
from tests.interop.librdkafka import consumer, producer, send
from tests.interop.records import Record

CONFIGS = {
    "retention.ms": "86400000",
    "retention.bytes": "1073741824",
    "compression.type": "lz4",
    "storage.compression": "zstd",
}


@pytest.fixture
def admin(seed_broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": seed_broker.address})


def created(admin: AdminClient, topic: NewTopic, **options: Any) -> Any:
    """Create a topic and return the future of the result."""
    return admin.create_topics([topic], **options)[topic.topic]


def refusal(future: Any) -> KafkaError:
    """Return the error of the failed request."""
    with pytest.raises(KafkaException) as caught:
        future.result(60)
    error: KafkaError = caught.value.args[0]
    return error


def test_orders_is_created_with_its_configs(admin: AdminClient) -> None:
    name = topic_name("orders")
    created(admin, NewTopic(name, 3, 1, config=CONFIGS)).result(60)
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    found = admin.describe_configs([resource])[resource].result(60)
    assert {config: found[config].value for config in CONFIGS} == CONFIGS
    assert not any(found[config].is_default or found[config].is_read_only for config in CONFIGS)


def test_defaults_are_those_of_the_page(admin: AdminClient) -> None:
    name = topic_name("orders")
    created(admin, NewTopic(name, 1, 1)).result(60)
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    found = admin.describe_configs([resource])[resource].result(60)
    defaults = {
        "retention.ms": "604800000",
        "retention.bytes": "-1",
        "compression.type": "none",
        "storage.compression": "lz4",
    }
    assert {config: found[config].value for config in defaults} == defaults


@pytest.mark.parametrize("name", ["", "x" * 250, "a:b", "a{b}", ".", "..", "__reserved"])
def test_names_outside_the_rules_are_refused(admin: AdminClient, name: str) -> None:
    assert refusal(created(admin, NewTopic(name, 1, 1))).code() == KafkaError.TOPIC_EXCEPTION


def test_a_topic_that_exists_is_refused(admin: AdminClient) -> None:
    name = topic_name("orders")
    created(admin, NewTopic(name, 1, 1)).result(60)
    assert refusal(created(admin, NewTopic(name, 1, 1))).code() == KafkaError.TOPIC_ALREADY_EXISTS


def test_any_replication_factor_is_taken(admin: AdminClient) -> None:
    name = topic_name("orders")
    created(admin, NewTopic(name, 1, 3)).result(60)
    (partition,) = admin.list_topics(name, timeout=60).topics[name].partitions.values()
    assert len(partition.replicas) == 1


def test_streams_come_with_the_first_record(seed_broker: Broker, store: Any) -> None:
    topic = create_topic(seed_broker.address, partitions=3)
    streams = [f"korvet:{topic}:{partition}" for partition in range(3)]
    assert [store.exists(stream) for stream in streams] == [0, 0, 0]
    send(producer(seed_broker.address), topic, [Record(None, b"v")], 1)
    assert [store.exists(stream) for stream in streams] == [0, 1, 0]


def test_validate_only_creates_nothing(admin: AdminClient, store: Any) -> None:
    name = topic_name("orders")
    created(admin, NewTopic(name, 3, 1), validate_only=True).result(60)
    assert not store.hexists("korvet:topics", name)
    assert name not in admin.list_topics(timeout=60).topics


def test_delete_responds_for_each_topic_and_leaves_no_key(
    seed_broker: Broker, admin: AdminClient, store: Any
) -> None:
    orders, payments = create_topic(seed_broker.address, partitions=3), topic_name("payments")
    for partition in range(3):
        send(producer(seed_broker.address), orders, [Record(None, b"v")], partition)
        store.xgroup_create(f"korvet:{orders}:{partition}", "my-group", "0")
    source = consumer(seed_broker.address, "my-group")
    source.commit(offsets=[TopicPartition(orders, 0, 1)], asynchronous=False)
    source.close()
    answers = admin.delete_topics([orders, payments])
    answers[orders].result(60)
    unknown = refusal(answers[payments])
    assert unknown.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert list(store.scan_iter(match=f"*korvet:{orders}:*", count=10_000)) == []
    assert not store.hexists("korvet:group:my-group:offsets", f"korvet:{orders}:0")


def test_metadata_names_broker_cluster_and_partitions(
    seed_broker: Broker, admin: AdminClient
) -> None:
    topic = create_topic(seed_broker.address, partitions=3)
    reported = admin.list_topics(timeout=60)
    assert reported.cluster_id == "korvet-cluster-1"
    (node,) = reported.brokers.values()
    assert f"{node.host}:{node.port}" == seed_broker.address
    assert reported.controller_id == node.id
    rows = reported.topics[topic].partitions
    assert {number: (row.leader, row.replicas, row.isrs) for number, row in rows.items()} == {
        number: (node.id, [node.id], [node.id]) for number in range(3)
    }


def test_a_missing_topic_is_unknown_if_the_request_does_not_allow_creation(
    seed_broker: Broker,
) -> None:
    source = consumer(seed_broker.address, allow_auto_create_topics=False)
    absent = topic_name("absent")
    reported = source.list_topics(timeout=60)
    assert absent not in reported.topics
    source.close()
