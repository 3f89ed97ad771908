"""Groups by confluent-kafka's admin client: list, describe, alter offsets, delete."""

import pytest
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from korvet.groups.offsets_view import encode_key, partition_of
from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic, refusal, topic_name
from tests.interop.librdkafka import consumer, eventually, producer, send, take
from tests.interop.members import Member, settled
from tests.interop.records import Record


def left_behind(address: str, group: str, topic: str, offset: int) -> TopicPartition:
    """Commit an offset of a group without members, and return the partition."""
    place = TopicPartition(topic, 0, offset)
    source = consumer(address, group)
    source.commit(offsets=[place], asynchronous=False)
    source.close()
    return TopicPartition(topic, 0)


def test_a_live_group_is_described_with_its_members(
    default_broker: Broker, admin: AdminClient
) -> None:
    address, group = default_broker.address, topic_name("group")
    topic = create_topic(address, partitions=2)
    with (
        Member(address, group, topic, client_id="one") as one,
        Member(address, group, topic) as two,
    ):
        settled([one, two], 2)
        found = admin.describe_consumer_groups([group])[group].result(60)
        assert found.state == ConsumerGroupState.STABLE
        assert not found.is_simple_consumer_group
        assert found.partition_assignor == "range"
        assert f"{found.coordinator.host}:{found.coordinator.port}" == address
        owned = [p for member in found.members for p in member.assignment.topic_partitions]
        assert {(place.topic, place.partition) for place in owned} == {(topic, 0), (topic, 1)}
        assert "one" in {member.client_id for member in found.members}
        assert all(member.host.strip("/") == "127.0.0.1" for member in found.members)


def test_groups_are_listed_by_state_and_type(default_broker: Broker, admin: AdminClient) -> None:
    address, live, empty = default_broker.address, topic_name("group"), topic_name("group")
    topic = create_topic(address)
    left_behind(address, empty, topic, 1)
    with Member(address, live, topic) as member:
        settled([member], 1)
        everything = admin.list_consumer_groups().result(60)
        assert everything.errors == []
        found = {row.group_id: row for row in everything.valid}
        assert found[live].state == ConsumerGroupState.STABLE
        assert found[empty].state == ConsumerGroupState.EMPTY
        assert found[live].type == ConsumerGroupType.CLASSIC
        stable = admin.list_consumer_groups(states={ConsumerGroupState.STABLE}).result(60)
        names = {row.group_id for row in stable.valid}
        assert live in names and empty not in names
        modern = admin.list_consumer_groups(types={ConsumerGroupType.CONSUMER}).result(60)
        assert live not in {row.group_id for row in modern.valid}


def test_an_unknown_group_is_not_found(admin: AdminClient) -> None:
    name = topic_name("absent")
    found = admin.describe_consumer_groups([name])[name].result(60)
    assert (found.state, found.members) == (ConsumerGroupState.DEAD, [])
    assert refusal(admin.delete_consumer_groups([name])[name]) == KafkaError.GROUP_ID_NOT_FOUND


def test_offsets_of_an_unknown_group_are_none(default_broker: Broker, admin: AdminClient) -> None:
    topic = create_topic(default_broker.address)
    name = topic_name("absent")
    asked = ConsumerGroupTopicPartitions(name, [TopicPartition(topic, 0)])
    found = admin.list_consumer_group_offsets([asked])[name].result(60)
    assert [place.offset for place in found.topic_partitions] == [-1001]
    everything = ConsumerGroupTopicPartitions(name)
    assert admin.list_consumer_group_offsets([everything])[name].result(60).topic_partitions == []


def test_offsets_of_an_empty_group_are_moved(default_broker: Broker, admin: AdminClient) -> None:
    address, group = default_broker.address, topic_name("group")
    topic = create_topic(address)
    offsets = send(producer(address), topic, [Record(b"%d" % n, b"v") for n in range(5)])
    left_behind(address, group, topic, offsets[4])
    moved = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, offsets[1])])
    admin.alter_consumer_group_offsets([moved])[group].result(60)
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    (place,) = found[group].result(60).topic_partitions
    assert (place.topic, place.partition, place.offset) == (topic, 0, offsets[1])
    source = consumer(address, group)
    source.subscribe([topic])
    assert take(source, 1)[0].offset() == offsets[1]
    source.close()


def test_offsets_of_a_live_group_stay(default_broker: Broker, admin: AdminClient) -> None:
    address, group = default_broker.address, topic_name("group")
    topic = create_topic(address)
    with Member(address, group, topic) as member:
        settled([member], 1)
        moved = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 0)])
        answer = admin.alter_consumer_group_offsets([moved])[group].result(60)
        (place,) = answer.topic_partitions
        assert place.error.code() == KafkaError.UNKNOWN_MEMBER_ID


def test_a_group_is_deleted_once_it_is_empty(default_broker: Broker, admin: AdminClient) -> None:
    address, group = default_broker.address, topic_name("group")
    topic = create_topic(address)
    with Member(address, group, topic) as member:
        settled([member], 1)
        assert refusal(admin.delete_consumer_groups([group])[group]) == KafkaError.NON_EMPTY_GROUP
    admin.delete_consumer_groups([group])[group].result(60)
    names = {row.group_id for row in admin.list_consumer_groups().result(60).valid}
    assert group not in names


def test_a_deleted_topic_takes_its_committed_offsets_along(
    default_broker: Broker, admin: AdminClient
) -> None:
    address, group = default_broker.address, topic_name("group")
    gone, kept = create_topic(address), create_topic(address)
    left_behind(address, group, gone, 5)
    left_behind(address, group, kept, 6)
    admin.delete_topics([gone])[gone].result(60)

    def remaining() -> list[tuple[str, int]]:
        found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
        places = found[group].result(60).topic_partitions
        return [(place.topic, place.offset) for place in places]

    eventually(lambda: remaining() == [(kept, 6)])


@pytest.mark.parametrize("group", ["{braces}:and:colons", "%7B percent \u00e4\u2603", "x" * 300])
def test_a_group_may_have_any_name(default_broker: Broker, admin: AdminClient, group: str) -> None:
    name = topic_name(group)
    topic = create_topic(default_broker.address)
    with Member(default_broker.address, name, topic) as member:
        settled([member], 1)
        assert name in {row.group_id for row in admin.list_consumer_groups().result(60).valid}
    left_behind(default_broker.address, name, topic, 3)
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)])
    assert [place.offset for place in found[name].result(60).topic_partitions] == [3]
    admin.delete_consumer_groups([name])[name].result(60)


@pytest.mark.korvet_only
def test_committed_offsets_are_records_of_the_internal_topic(default_broker: Broker) -> None:
    address, group = default_broker.address, topic_name("group")
    topic = create_topic(address, partitions=1)
    source = consumer(address)
    metadata = source.list_topics("__consumer_offsets", 15).topics["__consumer_offsets"]
    assert len(metadata.partitions) == 50
    place = TopicPartition("__consumer_offsets", partition_of(group), 0)
    source.assign([place])
    left_behind(address, group, topic, 41)
    left_behind(address, group, topic, 42)
    key = encode_key(group, topic, 0)
    found: list[bytes] = []

    def newest_is_read() -> bool:
        for message in source.consume(100, timeout=0.5):
            if not message.error() and message.key() == key:
                found.append(message.value())
        return bool(found) and found[-1][2:10] == (42).to_bytes(8, "big")

    eventually(newest_is_read, 60)
    source.close()
