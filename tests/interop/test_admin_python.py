"""Check the admin clients of kafka-python and aiokafka: topics, configs, records."""

from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.structs import TopicPartition as Place

from tests.interop import kafka_python as kp
from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic, topic_name
from tests.interop.librdkafka import producer, read, send
from tests.interop.records import Record


@pytest.fixture
def admin(default_broker: Broker) -> Any:
    client = kp.KafkaAdminClient(bootstrap_servers=default_broker.address)
    yield client
    client.close()


def test_kafka_python_creates_describes_grows_and_deletes(admin: Any) -> None:
    from kafka.admin import NewPartitions as More
    from kafka.admin import NewTopic as New

    name = topic_name()
    admin.create_topics([New(name, 2, 1, topic_configs={"retention.ms": "1000000"})])
    assert name in admin.list_topics()
    (topic,) = admin.describe_topics([name])
    assert len(topic["partitions"]) == 2
    admin.create_partitions({name: More(4)})
    (topic,) = admin.describe_topics([name])
    assert len(topic["partitions"]) == 4
    admin.delete_topics([name])
    assert name not in admin.list_topics()


def test_kafka_python_describes_and_alters_configs(default_broker: Broker, admin: Any) -> None:
    from kafka.admin import ConfigResource as Resource
    from kafka.admin import ConfigResourceType as Type

    name = create_topic(default_broker.address, retention_ms="1000000")

    def configs() -> dict[str, str]:
        found = admin.describe_configs([Resource(Type.TOPIC, name)])["topic"][name]
        return {key: row["value"] for key, row in found.items()}

    assert configs()["retention.ms"] == "1000000"
    admin.alter_configs([Resource(Type.TOPIC, name, {"retention.ms": "5000"})])
    assert configs()["retention.ms"] == "5000"


def test_kafka_python_looks_at_the_cluster(default_broker: Broker, admin: Any) -> None:
    name = create_topic(default_broker.address)
    cluster = admin.describe_cluster()
    assert len(cluster["brokers"]) == 1
    (place,) = admin.describe_log_dirs()[0]["log_dirs"]
    assert name in {topic["name"] for topic in place["topics"]}
    assert name in admin.list_config_resources()["topic"]
    assert admin.list_partition_reassignments() == {}
    assert admin.describe_user_scram_credentials() == {}
    quorum = admin.describe_metadata_quorum()
    assert quorum["topics"][0]["partitions"][0]["leader_id"] == cluster["controller_id"]


def test_kafka_python_deletes_records(default_broker: Broker, admin: Any) -> None:
    name = create_topic(default_broker.address)
    offsets = send(producer(default_broker.address), name, [Record(b"k", b"v")] * 5)
    place = kp.TopicPartition(name, 0)
    reported = admin.delete_records({place: offsets[3]})
    assert reported[place]["low_watermark"] == offsets[3]
    assert [message.offset() for message in read(default_broker.address, name, 2)] == offsets[3:]


async def test_aiokafka_does_the_same(default_broker: Broker) -> None:
    name = topic_name()
    client = AIOKafkaAdminClient(bootstrap_servers=default_broker.address)
    await client.start()
    try:
        await client.create_topics([NewTopic(name, 2, 1)])
        assert name in await client.list_topics()
        await client.create_partitions({name: NewPartitions(3)})
        (topic,) = await client.describe_topics([name])
        assert len(topic["partitions"]) == 3
        resource = ConfigResource(ConfigResourceType.TOPIC, name, {"retention.ms": "5000"})
        (altered,) = await client.alter_configs([resource])
        assert [row[0] for row in altered.resources] == [0]
        (described,) = await client.describe_configs([resource])
        ((_, _, _, _, entries),) = described.resources
        assert {entry[0]: entry[1] for entry in entries}["retention.ms"] == "5000"
        place = Place(name, 0)
        deleted = await client.delete_records({place: RecordsToDelete(before_offset=0)})
        assert deleted == {place: 0}
        assert (await client.describe_cluster())["cluster_id"]
        await client.delete_topics([name])
        assert name not in await client.list_topics()
    finally:
        await client.close()
