"""Topics by confluent-kafka's admin client: create, describe, configure, grow, trim, delete."""

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic, refusal, topic_name
from tests.interop.librdkafka import consumer, eventually, producer, read, send
from tests.interop.records import Record

TOPIC = ConfigResource.Type.TOPIC
BROKER = ConfigResource.Type.BROKER


def created(admin: AdminClient, topic: NewTopic, **options: Any) -> Any:
    """Create one topic and return the future."""
    return admin.create_topics([topic], **options)[topic.topic]


def test_a_created_topic_is_listed_with_its_partitions(admin: AdminClient) -> None:
    name = topic_name()
    created(admin, NewTopic(name, 4, 1)).result(60)
    found = eventually(lambda: admin.list_topics(timeout=60).topics.get(name))
    assert sorted(found.partitions) == [0, 1, 2, 3]
    assert all(partition.leader >= 0 for partition in found.partitions.values())
    assert all(partition.error is None for partition in found.partitions.values())


def test_a_topic_is_created_once(admin: AdminClient) -> None:
    name = topic_name()
    created(admin, NewTopic(name, 1, 1)).result(60)
    assert refusal(created(admin, NewTopic(name, 1, 1))) == KafkaError.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "sl/ash", "x" * 250, "gr\u00fcn"])
def test_a_name_that_cannot_be_is_refused(admin: AdminClient, name: str) -> None:
    assert refusal(created(admin, NewTopic(name, 1, 1))) == KafkaError.TOPIC_EXCEPTION


def test_a_name_of_249_characters_is_a_name(admin: AdminClient) -> None:
    name = topic_name().ljust(249, "x")
    created(admin, NewTopic(name, 1, 1)).result(60)
    admin.delete_topics([name])[name].result(60)


def test_no_partitions_are_refused(admin: AdminClient) -> None:
    refused = refusal(created(admin, NewTopic(topic_name(), 0, 1)))
    assert refused == KafkaError.INVALID_PARTITIONS


def test_partitions_left_to_the_broker_are_its_default(admin: AdminClient) -> None:
    name = topic_name()
    created(admin, NewTopic(name)).result(60)
    found = eventually(lambda: admin.list_topics(timeout=60).topics.get(name))
    assert len(found.partitions) >= 1


@pytest.mark.parametrize(
    ("config", "value"),
    [("retention.ms", "soon"), ("no.such.config", "1"), ("cleanup.policy", "burn")],
)
def test_a_config_that_cannot_be_is_refused(admin: AdminClient, config: str, value: str) -> None:
    topic = NewTopic(topic_name(), 1, 1, config={config: value})
    assert refusal(created(admin, topic)) == KafkaError.INVALID_CONFIG
    assert topic.topic not in admin.list_topics(timeout=60).topics


def test_validation_creates_nothing(admin: AdminClient) -> None:
    name = topic_name()
    created(admin, NewTopic(name, 2, 1), validate_only=True).result(60)
    assert name not in admin.list_topics(timeout=60).topics
    wrong = NewTopic(name, 2, 1, config={"retention.ms": "soon"})
    assert refusal(created(admin, wrong, validate_only=True)) == KafkaError.INVALID_CONFIG


def test_a_deleted_topic_is_gone_and_may_come_back_empty(admin: AdminClient) -> None:
    address = admin.list_topics(timeout=60).brokers.popitem()[1]
    bootstrap = f"{address.host}:{address.port}"
    name = create_topic(bootstrap)
    send(producer(bootstrap), name, [Record(b"old", b"v")])
    admin.delete_topics([name])[name].result(60)
    eventually(lambda: name not in admin.list_topics(timeout=60).topics)
    assert refusal(admin.delete_topics([name])[name]) == KafkaError.UNKNOWN_TOPIC_OR_PART
    eventually(lambda: created(admin, NewTopic(name, 1, 1)).exception(15) is None)
    send(producer(bootstrap), name, [Record(b"new", b"v")])
    assert read(bootstrap, name, 1)[0].key() == b"new"


def test_configs_are_described_with_their_source(admin: AdminClient) -> None:
    name = topic_name()
    created(admin, NewTopic(name, 1, 1, config={"retention.ms": "86400000"})).result(60)
    found = described(admin, TOPIC, name)
    assert found["retention.ms"].value == "86400000"
    assert not found["retention.ms"].is_default
    assert found["retention.bytes"].value == "-1"
    assert found["retention.bytes"].is_default
    assert found["cleanup.policy"].value == "delete"
    for expected in ("compression.type", "max.message.bytes", "message.timestamp.type"):
        assert expected in found


def test_configs_of_an_unknown_topic_are_an_error(admin: AdminClient) -> None:
    resource = ConfigResource(TOPIC, topic_name("absent"))
    refused = refusal(admin.describe_configs([resource])[resource])
    assert refused == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_the_brokers_own_configs_are_described(admin: AdminClient) -> None:
    (node, *_) = admin.list_topics(timeout=60).brokers
    found = described(admin, BROKER, str(node))
    assert int(found["num.partitions"].value) >= 1
    assert found["auto.create.topics.enable"].value == "true"
    assert found["message.max.bytes"].value


def test_configs_are_set_and_taken_back_one_by_one(admin: AdminClient) -> None:
    name = topic_name()
    created(admin, NewTopic(name, 1, 1, config={"retention.ms": "1000000"})).result(60)
    altered(admin, name, "retention.bytes", "5000000", AlterConfigOpType.SET).result(60)
    found = described(admin, TOPIC, name)
    assert (found["retention.bytes"].value, found["retention.ms"].value) == ("5000000", "1000000")
    altered(admin, name, "retention.ms", None, AlterConfigOpType.DELETE).result(60)
    found = described(admin, TOPIC, name)
    assert found["retention.ms"].is_default
    altered(admin, name, "cleanup.policy", "compact", AlterConfigOpType.APPEND).result(60)
    assert set(described(admin, TOPIC, name)["cleanup.policy"].value.split(",")) == {
        "delete",
        "compact",
    }
    altered(admin, name, "cleanup.policy", "compact", AlterConfigOpType.SUBTRACT).result(60)
    assert described(admin, TOPIC, name)["cleanup.policy"].value == "delete"


def test_a_change_that_cannot_be_leaves_the_config(admin: AdminClient) -> None:
    name = topic_name()
    created(admin, NewTopic(name, 1, 1)).result(60)
    refused = refusal(altered(admin, name, "retention.ms", "soon", AlterConfigOpType.SET))
    assert refused == KafkaError.INVALID_CONFIG
    assert described(admin, TOPIC, name)["retention.ms"].is_default


def test_partitions_are_added_and_never_taken(default_broker: Broker, admin: AdminClient) -> None:
    name = create_topic(default_broker.address, partitions=2)
    send(producer(default_broker.address), name, [Record(b"k", b"v")], partition=1)
    admin.create_partitions([NewPartitions(name, 5)])[name].result(60)
    eventually(lambda: len(admin.list_topics(name, timeout=60).topics[name].partitions) == 5)
    eventually(lambda: _accepts(default_broker, name, 4))
    assert read(default_broker.address, name, 1, partition=1)[0].key() == b"k"
    for count in (5, 3):
        refused = refusal(admin.create_partitions([NewPartitions(name, count)])[name])
        assert refused == KafkaError.INVALID_PARTITIONS


def test_records_are_deleted_up_to_an_offset(broker: Broker) -> None:
    name = create_topic(broker.address)
    offsets = send(producer(broker.address), name, [Record(b"%d" % n, b"v") for n in range(10)])
    admin = AdminClient({"bootstrap.servers": broker.address})
    place = TopicPartition(name, 0, offsets[6])
    assert admin.delete_records([place])[place].result(60).low_watermark == offsets[6]
    found = read(broker.address, name, 4)
    assert [message.offset() for message in found] == offsets[6:]
    everything = TopicPartition(name, 0, -1)
    assert admin.delete_records([everything])[everything].result(60).low_watermark > offsets[9]
    source = consumer(broker.address)
    low, high = source.get_watermark_offsets(TopicPartition(name, 0), timeout=60)
    source.close()
    assert low == high == offsets[9] + 1


def test_deleting_beyond_the_end_is_out_of_range(default_broker: Broker) -> None:
    name = create_topic(default_broker.address)
    (offset,) = send(producer(default_broker.address), name, [Record(b"k", b"v")])
    admin = AdminClient({"bootstrap.servers": default_broker.address})
    place = TopicPartition(name, 0, offset + 2)
    assert refusal(admin.delete_records([place])[place]) == KafkaError.OFFSET_OUT_OF_RANGE


def test_offsets_are_listed_by_what_they_stand_for(broker: Broker) -> None:
    name = create_topic(broker.address)
    stamps = [50, 90, 10]
    base = Record(None, b"v").timestamp
    records = [Record(None, b"v", timestamp=base + stamp) for stamp in stamps]
    sink = producer(broker.address)
    offsets = [send(sink, name, [record])[0] for record in records]
    admin = AdminClient({"bootstrap.servers": broker.address})
    place = TopicPartition(name, 0)

    def listed(spec: OffsetSpec) -> Any:
        return admin.list_offsets({place: spec})[place].result(60)

    assert listed(OffsetSpec.latest()).offset == offsets[-1] + 1
    assert listed(OffsetSpec.earliest()).offset <= offsets[0]
    newest = listed(OffsetSpec.max_timestamp())
    assert (newest.offset, newest.timestamp) == (offsets[1], base + 90)
    assert listed(OffsetSpec.for_timestamp(base + 60)).offset == offsets[1]


def test_topics_are_described_with_their_ids(default_broker: Broker, admin: AdminClient) -> None:
    names = [create_topic(default_broker.address, partitions=2) for _ in range(2)]
    futures = admin.describe_topics(TopicCollection(names))
    found = [futures[name].result(60) for name in names]
    assert [len(topic.partitions) for topic in found] == [2, 2]
    assert len({str(topic.topic_id) for topic in found}) == 2
    assert not any(topic.is_internal for topic in found)


def test_the_cluster_describes_itself(default_broker: Broker, admin: AdminClient) -> None:
    found = admin.describe_cluster().result(60)
    assert found.cluster_id
    assert default_broker.address in {f"{node.host}:{node.port}" for node in found.nodes}
    assert found.controller is not None


def described(admin: AdminClient, kind: Any, name: str) -> dict[str, ConfigEntry]:
    """Return the configs of one resource by name."""
    resource = ConfigResource(kind, name)
    found: dict[str, ConfigEntry] = admin.describe_configs([resource])[resource].result(60)
    return found


def altered(
    admin: AdminClient, topic: str, name: str, value: str | None, how: AlterConfigOpType
) -> Any:
    """Change one config incrementally and return the future."""
    entry = ConfigEntry(name, value, incremental_operation=how)
    resource = ConfigResource(TOPIC, topic, incremental_configs=[entry])
    return admin.incremental_alter_configs([resource])[resource]


def _accepts(broker: Broker, topic: str, partition: int) -> bool:
    errors: list[Any] = []
    sink = producer(broker.address, message_timeout_ms=2000)
    try:
        sink.produce(topic, b"v", partition=partition, on_delivery=lambda e, _: errors.append(e))
    except KafkaException:
        return False
    sink.flush(60)
    return errors == [None]
