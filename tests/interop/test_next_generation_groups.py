"""Check groups of the consumer protocol (KIP-848) with confluent-kafka."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupType, TopicPartition
from confluent_kafka.admin import AdminClient

import korvet
from tests.interop import librdkafka
from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic, topic_name
from tests.interop.jvm import Jvm
from tests.interop.librdkafka import consumer, eventually, producer, send
from tests.interop.members import Member, Writer, settled, union
from tests.interop.records import Record

CONSUMER_GROUP_HEARTBEAT = 68
pytestmark = pytest.mark.needs_api(CONSUMER_GROUP_HEARTBEAT)


@pytest.fixture
def quick(brokers: Any) -> Broker:
    """A broker whose members send a heartbeat every 100 ms."""
    broker: Broker = brokers.serving(
        group_consumer_heartbeat_interval_ms="100",
        group_consumer_min_heartbeat_interval_ms="100",
    )
    return broker


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_come_and_go_and_nothing_is_missed(quick: Broker, assignor: str) -> None:
    address, group = quick.address, topic_name("group")
    topic = create_topic(address, partitions=6)

    def join() -> Member:
        return Member(
            address, group, topic, group_protocol="consumer", group_remote_assignor=assignor
        )

    with Writer(address, topic, 6) as writer:
        first, second = join(), join()
        settled([first, second], 6)
        third = join()
        settled([first, second, third], 6)
        first.leave()
        settled([second, third], 6)
        writer.reach(50)
        writer.stop()
        eventually(lambda: union([first, second, third]) == writer.stored)
    second.leave()
    third.leave()


def test_the_group_is_described_as_of_its_protocol(quick: Broker) -> None:
    address, group = quick.address, topic_name("group")
    topic = create_topic(address, partitions=2)
    admin = AdminClient({"bootstrap.servers": address})
    with Member(address, group, topic, group_protocol="consumer") as member:
        settled([member], 2)
        found = eventually(lambda: stable(admin, group))
        assert found.type == ConsumerGroupType.CONSUMER
        (only,) = found.members
        assert {p.partition for p in only.assignment.topic_partitions} == {0, 1}
        listed = admin.list_consumer_groups(types={ConsumerGroupType.CONSUMER}).result(60)
        assert group in {row.group_id for row in listed.valid}


def test_a_subscription_by_pattern_is_matched_by_the_broker(quick: Broker) -> None:
    address, prefix = quick.address, topic_name("pattern")
    sink = producer(address)
    send(sink, f"{prefix}-one", [Record(None, b"v")])
    source = consumer(address, topic_name("group"), group_protocol="consumer")
    source.subscribe([f"^{prefix}-.*"])
    found = eventually(lambda: (message := source.poll(0.2)) and not message.error() and message)
    assert found.topic() == f"{prefix}-one"
    source.close()


def test_a_static_member_comes_back_to_its_partitions(quick: Broker) -> None:
    address, group = quick.address, topic_name("group")
    topic = create_topic(address, partitions=4)
    settings = {"group_protocol": "consumer"}
    one = Member(address, group, topic, group_instance_id="one", **settings)
    with Member(address, group, topic, group_instance_id="two", **settings) as two:
        settled([one, two], 4)
        before, rebalances = one.assigned, two.rebalances
        one.leave()
        one = Member(address, group, topic, group_instance_id="one", **settings)
        settled([one, two], 4)
        assert one.assigned == before
        assert two.rebalances == rebalances
        one.leave()


def test_an_empty_group_moves_between_the_protocols(quick: Broker) -> None:
    address, group = quick.address, topic_name("group")
    topic = create_topic(address)
    sink = producer(address)
    place = TopicPartition(topic, 0)
    for protocol in ("classic", "consumer", "classic"):
        (offset,) = send(sink, topic, [Record(None, protocol.encode())])
        with Member(address, group, topic, group_protocol=protocol) as member:
            eventually(lambda seen=member.seen, at=offset: seen[0, at])
            assert len(member.seen) == 1
        source = consumer(address, group)
        assert source.committed([place], 10)[0].offset == offset + 1
        source.close()


@pytest.mark.korvet_only
def test_members_of_the_library_share_the_partitions(tmp_path: Path, own_redis: str) -> None:
    quick = {
        f"group.consumer.{name}interval.ms": "100" for name in ("heartbeat.", "min.heartbeat.")
    }
    broker = Broker(tmp_path, quick, ("--redis", own_redis, "--namespace", "shared"))
    group = topic_name("group")
    found: Counter[tuple[int, int]] = Counter()
    with broker, korvet.Korvet.connect(own_redis, namespace="shared", settings=quick) as log:
        topic = create_topic(broker.address, partitions=4)
        with Writer(broker.address, topic, 4) as writer:
            member = Member(broker.address, group, topic, group_protocol="consumer")
            settled([member], 4)
            with log.consumer(group, [topic], idle_s=0.05) as consumer:

                def consume() -> None:
                    for _, record in zip(range(50), consumer, strict=False):
                        found[record.partition, record.offset] += 1
                    consumer.commit()

                def is_shared() -> bool:
                    consume()
                    return len(consumer.assignment) == len(member.assigned) == 2

                eventually(is_shared)
                assert {number for _, number in consumer.assignment} | member.assigned == {
                    0,
                    1,
                    2,
                    3,
                }
                before = found.total()
                eventually(lambda: consume() or found.total() > before + 50)
                member.leave()
                writer.stop()
                eventually(lambda: consume() or found.keys() | member.seen.keys() == writer.stored)
            together = found + member.seen
            assert set(together.values()) == {1}, "a record was read twice"
        source = librdkafka.consumer(broker.address, group)
        places = [TopicPartition(topic, number) for number in range(4)]
        ends = [source.get_watermark_offsets(place, 10)[1] for place in places]
        assert [place.offset for place in source.committed(places, 10)] == ends
        source.close()


@pytest.mark.korvet_only
def test_java_continues_where_the_library_has_committed(
    tmp_path: Path, own_redis: str, java: Jvm
) -> None:
    group, options = topic_name("group"), ("--redis", own_redis, "--namespace", "java")
    made = korvet.Korvet.connect(own_redis, namespace="java")
    with Broker(tmp_path, {}, options) as broker, made as log:
        topic = create_topic(broker.address, partitions=4)
        log.produce(topic, [korvet.Record(b"v") for _ in range(20)])
        log.produce(topic, [korvet.Record(b"v") for _ in range(20)])
        with log.consumer(group, topic, idle_s=0) as consumer:
            for _, _ in zip(range(15), consumer, strict=False):
                pass
            consumer.commit()
        said = java.interop("group", broker.address, topic, group, "consumer")
        assert ["seen", "25"] in said, said
        log.produce(topic, [korvet.Record(b"w")])
        with log.consumer(group, topic, idle_s=0) as consumer:
            assert [record.value for record in consumer] == [b"w"]


@pytest.mark.korvet_only
def test_a_killed_broker_moves_no_member(own_broker: Broker) -> None:
    address, group = own_broker.address, topic_name("group")
    topic = create_topic(address, partitions=4)
    settings = {"group_protocol": "consumer", "reconnect_backoff_max_ms": 100}
    with (
        Member(address, group, topic, **settings) as one,
        Member(address, group, topic, **settings) as two,
    ):
        settled([one, two], 4)
        eventually(lambda: stable(AdminClient({"bootstrap.servers": address}), group))
        before = [member.rebalances for member in (one, two)]
        own_broker.kill()
        own_broker.start()
        with Writer(address, topic, 4) as writer:
            writer.reach(40)
            writer.stop()
            eventually(lambda: union([one, two]) == writer.stored)
        assert [member.rebalances for member in (one, two)] == before
        # A new client: an old one may need longer than its timeout to reconnect to the broker.
        assert stable(AdminClient({"bootstrap.servers": address}), group)


def stable(admin: AdminClient, group: str) -> Any:
    """Return the group's description if the group is stable, else None."""
    found = admin.describe_consumer_groups([group])[group].result(60)
    return found if found.state == ConsumerGroupState.STABLE else None
